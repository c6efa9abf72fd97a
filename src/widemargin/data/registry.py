"""Table of the data sets by name, and `load`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

from widemargin.checks import check_choice, check_flag
from widemargin.data.embedded import load_digits, load_mnist_5k, load_toy
from widemargin.data.imagenet import ImageNet, load_imagenet
from widemargin.data.releases import CIFAR10, FASHION_MNIST, MNIST, load_release
from widemargin.data.samples import Data

InMemory = Literal["digits", "mnist-5k", "mnist", "fashion-mnist", "cifar10", "toy"]
Root: TypeAlias = str | Path | None
AnyData: TypeAlias = Data[Any]


@overload
def load(name: InMemory, root: Root = None, *, verify: bool = True) -> Data: ...
@overload
def load(name: Literal["imagenet"], root: Root = None, *, verify: bool = True) -> ImageNet: ...
@overload
def load(name: str, root: Root = None, *, verify: bool = True) -> AnyData: ...
def load(name: str, root: Root = None, *, verify: bool = True) -> AnyData:
    """The data set `name`: x as float32, images [n, channels, height, width] in [0, 1]; y as int64.

    `digits` and `mnist-5k` are part of Python packages, `toy` is generated. The others are searched in `root`, or in
    the folder of the environment variable WIDEMARGIN_DATA, else downloaded with the extra `hub`; `imagenet` is
    streamed. The files must have the checksums of the original release, unless `verify` is False, for a subset or a
    changed copy.
    """
    check_choice("name", name, _LOADERS)
    check_flag("verify", verify)
    return _LOADERS[name](root, verify)


def names() -> tuple[str, ...]:
    """The names that `load` accepts."""
    return tuple(_LOADERS)


_LOADERS: dict[str, Callable[[Root, bool], AnyData]] = {
    "digits": lambda root, verify: load_digits(),  # noqa: ARG005
    "mnist-5k": lambda root, verify: load_mnist_5k(),  # noqa: ARG005
    "mnist": lambda root, verify: load_release(MNIST, root, verify=verify),
    "fashion-mnist": lambda root, verify: load_release(FASHION_MNIST, root, verify=verify),
    "cifar10": lambda root, verify: load_release(CIFAR10, root, verify=verify),
    "imagenet": lambda root, verify: load_imagenet(root),  # noqa: ARG005
    "toy": lambda root, verify: load_toy(),  # noqa: ARG005
}
