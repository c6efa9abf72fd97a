from __future__ import annotations

from typing import get_args

import pytest

from widemargin.data import load, names
from widemargin.data.registry import InMemory


def test_the_names() -> None:
    assert names() == ("digits", "mnist-5k", "mnist", "fashion-mnist", "cifar10", "imagenet", "toy")
    assert {*get_args(InMemory), "imagenet"} == set(names())


@pytest.mark.parametrize(
    ("name", "close"),
    [("MNIST", "mnist"), ("mnist5k", "mnist-5k"), ("cifar-10", "cifar10"), ("fashion_mnist", "fashion-mnist")],
)
def test_a_close_name_is_suggested(name: str, close: str) -> None:
    with pytest.raises(ValueError, match=rf"name is '{name}'.*'toy'.*'{close}'\?"):
        load(name)


def test_a_far_name_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match=r"name is 'weather'.* 'digits', 'mnist-5k'.*'toy'$"):
        load("weather")
