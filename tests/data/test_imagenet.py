from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from data.synthetic import FakeHub, encoded
from widemargin.data import batches, load
from widemargin.data.imagenet import ImageFolder, load_imagenet

SHADES = {"n01": 40, "n02": 200}


def write_images(root: Path, *, val: str = "val") -> None:
    """Two classes of even images of one shade each: three for training, one for validation."""
    for part, count in (("train", 3), (val, 1)):
        for name, shade in SHADES.items():
            (root / part / name).mkdir(parents=True)
            for k in range(count):
                image = Image.fromarray(np.full((30 + k, 40, 3), shade, np.uint8))
                image.save(root / part / name / f"{name}_{k}.JPEG", quality=100)


@pytest.mark.parametrize(("inner", "val"), [("", "val"), ("imagenet", "val"), ("ILSVRC2012", "validation")])
def test_a_folder_of_folders(tmp_path: Path, inner: str, val: str) -> None:
    write_images(tmp_path / inner, val=val)
    data = load("imagenet", tmp_path)
    assert data.classes == ("n01", "n02")
    assert data.bounds == (0.0, 1.0)
    assert isinstance(data.train, ImageFolder)
    assert isinstance(data.test, ImageFolder)
    assert (len(data.train), len(data.test)) == (6, 2)
    x, y = data.train[3]
    assert x.shape == (3, 224, 224)
    assert x.dtype == torch.float32
    assert y.item() == 1
    assert torch.allclose(x, torch.full_like(x, 200 / 255), atol=0.01)
    assert repr(data.test).startswith("ImageFolder(2 images of 2 classes in ")


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    write_images(tmp_path)
    (tmp_path / "train" / "n01" / "n01_1.JPEG").write_bytes(b"broken")
    data = load_imagenet(tmp_path, size=8)
    assert isinstance(data.train, ImageFolder)
    assert data.train[0][0].shape == (3, 8, 8)
    with pytest.raises(ValueError, match=r"n01/n01_1\.JPEG is not"):
        data.train[1]


def test_in_batches_with_workers_too(tmp_path: Path) -> None:
    write_images(tmp_path)
    data = load_imagenet(tmp_path, size=8)
    found = batches(data, split="train", batch_size=4)
    assert len(found) == 2
    assert [y.tolist() for _, y in found] == [[0, 0, 0, 1], [1, 1]]
    loader = DataLoader(data.train, batch_size=4, num_workers=1)
    assert [y.tolist() for _, y in batches(loader)] == [[0, 0, 0, 1], [1, 1]]


def test_folders_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write_images(tmp_path)
    (tmp_path / "val" / "n03").mkdir()
    with pytest.raises(ValueError, match="n03"):
        load("imagenet", tmp_path)
    (tmp_path / "train" / "n03").mkdir()
    with pytest.raises(FileNotFoundError, match="train/n03"):
        load("imagenet", tmp_path)


def test_a_flat_validation_folder_is_named(tmp_path: Path) -> None:
    write_images(tmp_path)
    flat = tmp_path / "flat"
    (flat / "val").mkdir(parents=True)
    (tmp_path / "train").rename(flat / "train")
    (flat / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="flat/val "):
        load("imagenet", flat)


def test_nothing_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path} .*imagenet.*widemargin\[hub\]"):
        load("imagenet", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"imagenet .*root="):
        load("imagenet")
    with pytest.raises(ValueError, match="size is 0"):
        load_imagenet(tmp_path, size=0)


def test_streamed_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"image": {"bytes": encoded(np.full((3, 20, 20), 51, np.uint8)), "path": "a.JPEG"}, "label": 7}
    broken = {"image": {"bytes": b"", "path": "b.JPEG"}, "label": 1}
    repository = "ILSVRC/imagenet-1k"
    hub = FakeHub({repository: {"train": [row, row, broken], "validation": [row]}}).install(monkeypatch)
    data = load_imagenet(None, size=4)
    assert hub.calls == [(repository, "train", True), (repository, "validation", True)]
    assert data.classes[7] == "class 7"
    ((x, y),) = batches(data)
    assert torch.equal(x, torch.full((1, 3, 4, 4), 0.2))
    assert y.tolist() == [7]
    stream = iter(batches(data, split="train", batch_size=1))
    assert next(stream)[1].tolist() == next(stream)[1].tolist() == [7]
    with pytest.raises(ValueError, match="row 2 of the train split of ILSVRC/imagenet-1k"):
        next(stream)


def test_a_closed_door_at_the_hub_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub({}).install(monkeypatch)
    with pytest.raises(OSError, match=r"imagenet .*root=.*; ILSVRC/imagenet-1k "):
        load("imagenet")
