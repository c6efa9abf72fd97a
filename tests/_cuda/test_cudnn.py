"""cuDNN is off while a recurrent layer is watched, and as it was afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin._cuda.cudnn import without_cudnn


@pytest.mark.parametrize("before", [True, False])
def test_the_last_of_several_blocks_restores_the_setting(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two threads may end in the order in which they began."""
    monkeypatch.setattr(torch.backends.cudnn, "enabled", before)
    first, second = without_cudnn([nn.GRU(2, 2)]), without_cudnn([nn.LSTM(2, 2)])
    first.__enter__()
    second.__enter__()
    assert not torch.backends.cudnn.enabled
    first.__exit__(None, None, None)
    assert not torch.backends.cudnn.enabled
    second.__exit__(None, None, None)
    assert torch.backends.cudnn.enabled is before


def test_other_layers_leave_it_alone() -> None:
    before = torch.backends.cudnn.enabled
    with without_cudnn([nn.Linear(2, 2)]):
        assert torch.backends.cudnn.enabled is before
