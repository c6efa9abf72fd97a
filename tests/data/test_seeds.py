from __future__ import annotations

import pytest
import torch

from widemargin.data import Samples, holdout
from widemargin.data.seeds import generator


def test_same_purpose_and_seed_same_numbers_and_no_others() -> None:
    draws = {
        (purpose, seed): tuple(torch.rand(4, generator=generator(purpose, seed)).tolist())
        for purpose in ("subset", "holdout")
        for seed in (0, 1, 2**40, -1)
    }
    assert len(set(draws.values())) == len(draws)
    assert draws["subset", 1] == tuple(torch.rand(4, generator=generator("subset", 1)).tolist())


def test_the_training_seed_neither_matters_nor_moves() -> None:
    samples = Samples(torch.arange(20.0).unsqueeze(1), torch.arange(20))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, _ = holdout(samples, 5, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    second, _ = holdout(samples, 5, seed=0)
    assert torch.equal(first.x, second.x)


def test_a_seed_is_an_integer() -> None:
    with pytest.raises(TypeError, match="seed is True"):
        generator("subset", True)
