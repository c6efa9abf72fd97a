"""The three image sets that are read from their original files: what the releases are, as data.

The sums of the `.gz` files, of `cifar-10-binary.tar.gz` and of its members are those of the original releases; those
of the unpacked idx files are the sums of what the verified `.gz` files unpack to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from widemargin.data import cifar_binary, idx
from widemargin.data.files import File

Images = UInt8[np.ndarray, "n channels height width"]
Labels = UInt8[np.ndarray, " n"]


@dataclass(frozen=True, kw_only=True)
class Release:
    """One original release: its files, how they are read and written, and its name elsewhere."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    files: Mapping[str, tuple[str, ...]]
    """The unpacked files of each split."""
    archive: str | None
    """A tar file that holds all of them."""
    sums: Mapping[str, str]
    folders: tuple[str, ...]
    """Names that the folder of its files goes by."""
    hub: str
    """The repository on the Hugging Face hub."""
    parse: Callable[[tuple[File, ...]], tuple[Images, Labels]]
    pack: Callable[[Images, Labels, tuple[str, ...]], dict[str, bytes]]
    """The inverse of `parse`: the contents that the named files would have."""


MNIST = Release(
    name="mnist",
    classes=tuple("0123456789"),
    shape=(1, 28, 28),
    files=idx.FILES,
    archive=None,
    sums={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    folders=("mnist", "MNIST", "mnist/mnist"),
    hub="ylecun/mnist",
    parse=idx.parse,
    pack=idx.pack,
)

FASHION_MNIST = Release(
    name="fashion-mnist",
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    shape=(1, 28, 28),
    files=idx.FILES,
    archive=None,
    sums={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    folders=("fashion-mnist", "FashionMNIST", "fashion_mnist", "fashion_mnist/fashion_mnist"),
    hub="zalando-datasets/fashion_mnist",
    parse=idx.parse,
    pack=idx.pack,
)

CIFAR10 = Release(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    shape=(3, 32, 32),
    files=cifar_binary.FILES,
    archive="cifar-10-binary.tar.gz",
    sums={
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    folders=("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10/plain_text", "plain_text"),
    hub="uoft-cs/cifar10",
    parse=cifar_binary.parse,
    pack=cifar_binary.pack,
)
