"""The points of farhang's studies."""

from __future__ import annotations

import math

import pytest
import torch

from widemargin.studies.spheres import points

DIGITS = {"name": "digits", "train": 100, "test": 50, "standardize": [0.3, 0.4]}


def test_points_lie_on_the_sphere_and_belong_to_their_seed() -> None:
    one = points(DIGITS, 0)
    for part in (one.clean, one.test):
        lengths = part.x.flatten(1).norm(dim=1)
        torch.testing.assert_close(lengths, torch.full_like(lengths, math.sqrt(64)))
    assert (len(one.clean), len(one.test), one.more) == (100, 50, None)
    assert points(DIGITS, 0) is one  # networks of a population share their points
    assert not torch.equal(points(DIGITS, 1).clean.x, one.clean.x)


def test_random_labels_keep_the_inputs() -> None:
    true, random = points(DIGITS, 0).clean, points({**DIGITS, "labels": "random"}, 0).clean
    assert torch.equal(true.x, random.x)
    assert 0.0 < float((true.y == random.y).double().mean()) < 0.3


def test_an_attack_adds_points_with_random_labels() -> None:
    alone, attacked = points(DIGITS, 0), points({**DIGITS, "attack": 60}, 0)
    assert torch.equal(attacked.clean.x, alone.clean.x)
    assert torch.equal(attacked.clean.y, alone.clean.y)
    assert attacked.more is not None
    assert (len(attacked.more), len(attacked.train)) == (60, 160)


def test_a_pair_of_classes_becomes_signs() -> None:
    one = points({**DIGITS, "train": 5, "pair": [3, 8]}, 0)
    assert sorted(one.clean.y.tolist()) in ([-1.0, -1.0, -1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, 1.0, 1.0])
    assert set(one.test.y.tolist()) == {-1.0, 1.0}


def test_parity_becomes_signs() -> None:
    classes, signs = points(DIGITS, 0).clean.y, points({**DIGITS, "parity": True}, 0).clean.y
    assert torch.equal(signs, torch.where(classes % 2 == 1, 1.0, -1.0))


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ValueError, match=r"data.*'flips'"):
        points({**DIGITS, "flips": 0.1}, 0)
