"""`mnist`, `fashion-mnist` and `cifar10` from every layout that their files come in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from data.synthetic import (
    Arrays,
    FakeHub,
    arrays,
    cifar_contents,
    idx_contents,
    publish,
    rows,
    tar_bytes,
    write,
    write_parquet,
)
from widemargin.data import Data, load
from widemargin.data.releases import CIFAR10, FASHION_MNIST, MNIST

GREY, COLOUR = arrays((1, 28, 28)), arrays((3, 32, 32))


def check(data: Data, expected: Arrays) -> None:
    for part, split in ((data.train, "train"), (data.test, "test")):
        images, labels = expected[split]
        assert part.x.dtype == torch.float32
        assert part.y.dtype == torch.int64
        assert torch.equal(part.x, torch.tensor(images).float() / 255)
        assert part.y.tolist() == labels.tolist()
    assert data.bounds == (0.0, 1.0)
    assert len(data.classes) == 10


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("inner", ["", "{name}", "{name}/raw", "raw"])
def test_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, zipped: bool, inner: str) -> None:
    publish(monkeypatch, name, idx_contents(GREY))
    write(tmp_path / inner.format(name=name), idx_contents(GREY), zipped=zipped)
    data = load(name, tmp_path)
    check(data, GREY)
    assert data.name == name


def test_the_variable_is_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "mnist", idx_contents(GREY))
    write(tmp_path / "MNIST" / "raw", idx_contents(GREY))
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path))
    check(load("mnist"), GREY)


def test_two_data_sets_of_the_same_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = arrays((1, 28, 28), train=30)
    publish(monkeypatch, "mnist", idx_contents(GREY))
    publish(monkeypatch, "fashion-mnist", idx_contents(other))
    write(tmp_path, idx_contents(GREY))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte has md5 "):
        load("fashion-mnist", tmp_path)
    write(tmp_path / "fashion-mnist", idx_contents(other))
    check(load("fashion-mnist", tmp_path), other)
    check(load("mnist", tmp_path), GREY)


@pytest.mark.parametrize("inner", ["", "cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_cifar10_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    publish(monkeypatch, "cifar10", cifar_contents(COLOUR))
    write(tmp_path / inner, cifar_contents(COLOUR))
    check(load("cifar10", tmp_path), COLOUR)


def test_cifar10_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "cifar10", cifar_contents(COLOUR))
    write(tmp_path, {"cifar-10-binary.tar.gz": tar_bytes(cifar_contents(COLOUR))})
    check(load("cifar10", tmp_path), COLOUR)


@pytest.mark.parametrize(
    ("inner", "column", "form", "shards"),
    [("cifar10", "img", "WEBP", 3), ("", "img", "PNG", 1), ("cifar10/plain_text", "image", "PNG", 2)],
)
def test_cifar10_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str, column: str, form: str, shards: int
) -> None:
    publish(monkeypatch, "cifar10", cifar_contents(COLOUR))
    write_parquet(tmp_path / inner, COLOUR, column, form, shards=shards)
    check(load("cifar10", tmp_path), COLOUR)


def test_mnist_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "mnist", idx_contents(GREY))
    write_parquet(tmp_path / "mnist", GREY)
    check(load("mnist", tmp_path), GREY)


def test_parquet_with_another_content_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {split: (images.copy(), labels) for split, (images, labels) in COLOUR.items()}
    changed["train"][0][-1, 2, 31, 31] ^= 1  # the last bit of the last pixel
    publish(monkeypatch, "cifar10", cifar_contents(COLOUR))
    write_parquet(tmp_path, changed)
    with pytest.raises(ValueError, match=r"data_batch_5\.bin .*train-\*\.parquet"):
        load("cifar10", tmp_path)
    check(load("cifar10", tmp_path, verify=False), changed)


def test_real_sums_reject_what_is_not_the_release(tmp_path: Path) -> None:
    write(tmp_path / "mnist", idx_contents(GREY), zipped=True)
    write(tmp_path / "cifar10", cifar_contents(COLOUR))
    with pytest.raises(ValueError, match="6bbc9ace898e44ae57da46a324031adb"):
        load("mnist", tmp_path)
    with pytest.raises(ValueError, match="5dd7e06a14cb22eb9f671a540d1b7c25"):
        load("cifar10", tmp_path)
    check(load("mnist", tmp_path, verify=False), GREY)
    check(load("cifar10", tmp_path, verify=False), COLOUR)


@pytest.mark.parametrize("release", [MNIST, FASHION_MNIST, CIFAR10], ids=lambda release: release.name)
def test_every_file_of_a_release_has_a_sum(release: object) -> None:
    assert isinstance(release, type(MNIST))
    names = {name for split in release.files.values() for name in split}
    assert set(release.sums) == names
    assert len(set(release.sums.values())) == len(names)
    assert all(len(bytes.fromhex(value)) == 16 for value in release.sums.values())


def test_missing_truncated_and_wrong_files_are_named(tmp_path: Path) -> None:
    contents = idx_contents(GREY)
    write(tmp_path, contents)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte is missing"):
        load("mnist", tmp_path)
    write(tmp_path, {"t10k-labels-idx1-ubyte": contents["t10k-labels-idx1-ubyte"][:-1]})
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte .*\b9 "):
        load("mnist", tmp_path, verify=False)
    write(tmp_path, idx_contents(arrays((1, 27, 28))))
    with pytest.raises(ValueError, match=r"\[1, 27, 28\].* \[1, 28, 28\]"):
        load("mnist", tmp_path, verify=False)
    images, labels = GREY["train"]
    write(tmp_path, idx_contents(GREY | {"train": (images, labels + 1)}))
    with pytest.raises(ValueError, match="label 10 at index 9"):
        load("mnist", tmp_path, verify=False)


def test_half_of_a_parquet_layout_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, COLOUR)
    (tmp_path / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"test-\*\.parquet"):
        load("cifar10", tmp_path, verify=False)


def test_nothing_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path} .*mnist.*widemargin\[hub\]"):
        load("mnist", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cifar10 .*root=.*WIDEMARGIN_DATA"):
        load("cifar10")


@pytest.mark.parametrize(
    ("name", "repository", "column", "data"),
    [
        ("mnist", "ylecun/mnist", "image", GREY),
        ("fashion-mnist", "zalando-datasets/fashion_mnist", "image", GREY),
        ("cifar10", "uoft-cs/cifar10", "img", COLOUR),
    ],
)
def test_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, repository: str, column: str, data: Arrays
) -> None:
    splits = {split: rows(part, column) for split, part in data.items()}
    hub = FakeHub({repository: splits}).install(monkeypatch)
    publish(monkeypatch, name, (cifar_contents if name == "cifar10" else idx_contents)(data))
    check(load(name, tmp_path), data)
    assert hub.calls == [(repository, "train", False), (repository, "test", False)]
    assert not list(tmp_path.iterdir())  # nothing of our own is cached
    splits["test"].reverse()
    with pytest.raises(ValueError, match=f"test split of {repository}"):
        load(name)


def test_local_files_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub({}).install(monkeypatch)
    write(tmp_path, idx_contents(GREY))
    load("mnist", tmp_path, verify=False)
    assert hub.calls == []
    with pytest.raises(OSError, match=rf"{tmp_path} .*cifar10.*; uoft-cs/cifar10 .*: no route to host"):
        load("cifar10", tmp_path)


def test_no_pickle_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The Python version of CIFAR-10 is pickles; it is not a layout that is looked at.
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x04.")
    monkeypatch.setitem(sys.modules, "pickle", None)
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} .*cifar10"):
        load("cifar10", tmp_path)
