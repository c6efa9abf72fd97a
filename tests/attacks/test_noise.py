from __future__ import annotations

import pytest
import torch

from widemargin import attacks


def test_without_bounds_the_noise_is_normal() -> None:
    x = torch.full((400, 10, 10), 0.5, dtype=torch.float64)
    z = (attacks.gaussian(x, 0.2, bounds=None) - x).flatten() / 0.2
    error = len(z) ** -0.5
    assert abs(float(z.mean())) < 5 * error
    assert abs(float(z.square().mean()) - 1) < 5 * 2**0.5 * error
    assert abs(float(z.pow(4).mean()) - 3) < 5 * 96**0.5 * error
    assert float(z.abs().max()) > 3.5


def test_results_are_clipped_to_the_range_of_the_data() -> None:
    x = torch.rand(50, 20)
    free, clipped = attacks.gaussian(x, 0.5, bounds=None), attacks.gaussian(x, 0.5)
    assert float(free.min()) < 0
    assert torch.equal(free.clamp(0, 1), clipped)
    assert torch.equal(attacks.gaussian(x, 0), x)


def test_of_one_seed_the_noise_is_the_same_for_every_sigma_and_every_batch_size() -> None:
    x = torch.rand(30, 20, dtype=torch.float64)
    small, large = (attacks.gaussian(x, sigma, 7, bounds=None) - x for sigma in (0.1, 0.3))
    torch.testing.assert_close(3 * small, large)
    draw, again = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    halves = [attacks.gaussian(part, 0.1, draw) for part in (x[:7], x[7:])]
    assert torch.equal(torch.cat(halves), attacks.gaussian(x, 0.1, again))
    assert not torch.equal(attacks.gaussian(x, 0.1, 0), attacks.gaussian(x, 0.1, 1))


def test_the_networks_precision_is_kept() -> None:
    assert attacks.gaussian(torch.rand(3, 2).bfloat16(), 0.1).dtype == torch.bfloat16


def test_bad_sigma_gets_one_sentence() -> None:
    with pytest.raises(ValueError, match="sigma is -1"):
        attacks.gaussian(torch.rand(3, 2), -1)
