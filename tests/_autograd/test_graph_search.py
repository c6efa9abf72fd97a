from __future__ import annotations

import torch

from widemargin._autograd.graph_search import is_computed_from


def test_a_tensor_is_found_in_the_graph_of_what_was_computed_from_it() -> None:
    x, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y = x * 2
    end = (y + 1).double().sum()
    assert is_computed_from(end, [x])
    assert is_computed_from(end, [other, y])
    assert not is_computed_from(end, [other, other * 2, x * 2])
    assert is_computed_from(end.detach(), [other])  # without a graph nobody knows
