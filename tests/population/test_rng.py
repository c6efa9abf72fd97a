"""Streams of random numbers, one for every network."""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin.population import rng

CPU = torch.device("cpu")


def splitmix(key: int, number: int, count: int) -> list[int]:
    """The 64-bit numbers of the stream, with Python's integers (Steele et al. 2014)."""
    mask, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    start = mix((key + golden * (number + 1)) & mask)
    return [mix((start + golden * i) & mask) for i in range(1, count + 1)]


def test_masks_are_those_of_splitmix64() -> None:
    for key in (0, -1, 123456789, -(2**63)):
        for p in (0.1, 0.5, 0.9):
            kept = rng.keep(torch.tensor(key), 3, (4, 25), p)
            expected = [(z >> 11) / 2**53 >= p for z in splitmix(key, 3, 100)]
            assert kept.flatten().tolist() == expected


def test_masks_keep_what_they_should_and_are_independent() -> None:
    keys = rng.keys(range(4), "dropout", 0)
    masks = torch.stack([rng.keep(key, number, (50_000,), 0.3) for key in keys for number in range(3)]).double()
    assert torch.allclose(masks.mean(dim=1), torch.tensor(0.7, dtype=torch.float64), atol=0.01)
    assert (torch.corrcoef(masks) - torch.eye(12, dtype=torch.float64)).abs().max() < 0.02
    assert abs(float(torch.corrcoef(torch.stack([masks[0, 1:], masks[0, :-1]]))[0, 1])) < 0.02


def test_under_vmap_every_network_has_its_own() -> None:
    keys = rng.keys([5, 6], "dropout", 0)

    def of(key: Tensor) -> Tensor:
        return rng.keep(key, 1, (3, 4), 0.5)

    assert torch.equal(torch.vmap(of)(keys), torch.stack([of(key) for key in keys]))


def test_keys_depend_on_seed_and_purpose() -> None:
    every = [rng.keys(range(3), "dropout", part) for part in range(2)] + [rng.keys(range(3), "other")]
    assert len(set(torch.cat(every).tolist())) == 9
    assert torch.equal(rng.keys([2], "dropout", 1), every[1][2:])


def test_a_network_goes_on_in_its_stream_where_it_stopped() -> None:
    with torch.random.fork_rng(devices=[]):
        streams = rng.Streams([7, 8], 3, CPU)
        parts = []
        for k in (0, 1, 0, 1):
            with streams.of(k):
                parts.append(torch.rand(5))
        for k in (0, 1):
            with rng.Streams([7, 8], 3, CPU).of(k):
                assert torch.equal(torch.rand(10), torch.cat([parts[k], parts[k + 2]]))
    assert len({tuple(part.tolist()) for part in parts}) == 4
