"""Own files as data sets: written here with NumPy, pandas and Pillow, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from widemargin.data import Data, Samples, load_files
from widemargin.data.own_files import is_own, split, whole

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4)).astype(np.float32)
Y = np.arange(30) % 3
NAMES = np.array(["cat", "dog", "emu"])[Y]
BYTES = RNG.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)


def table(**more: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=list("abcd")).assign(**more)


def write_images(folder: Path, images: Any = BYTES, form: str = "png") -> None:
    for number, (image, name) in enumerate(zip(images, NAMES)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name / f"{number:03d}.{form}")


def check_split(data: Data, x: Any) -> None:
    """Both parts together are the file, two of ten of each class are for testing, and positions tell the rows."""
    assert (len(data.train), len(data.test)) == (24, 6)
    assert data.test.y.bincount().tolist() == [2, 2, 2]
    for part in (data.train, data.test):
        assert part.index is not None
        np.testing.assert_allclose(part.x.numpy(), x[part.index.numpy()], rtol=1e-6)
    both = whole(data)
    assert both.index is not None
    assert both.index.tolist() == list(range(30))
    np.testing.assert_allclose(both.x.numpy(), x, rtol=1e-6)


def test_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X.astype(np.float64), y=Y)
    data = load_files(tmp_path / "a.npz")
    assert data.train.x.dtype == torch.float32
    check_split(data, X)
    assert data.classes == ("0", "1", "2")
    assert data.bounds is None
    again, other = (load_files(tmp_path / "a.npz", seed=seed).test for seed in (0, 1))
    assert torch.equal(again.x, data.test.x)
    assert not torch.equal(again.x, other.x)


def test_arrays_with_names_and_bytes(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", images=BYTES, labels=NAMES)
    data = load_files(str(tmp_path / "a.npz"))
    check_split(data, BYTES.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    assert data.classes == data.train.classes == ("cat", "dog", "emu")
    assert data.bounds == (0.0, 1.0)
    np.savez(tmp_path / "grey.npz", x=BYTES[..., 0], y=Y)
    assert load_files(tmp_path / "grey.npz").train.x.shape[1:] == (1, 6, 5)


def test_arrays_of_two_parts(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=X[:20], y_train=Y[:20], x_test=X[20:], y_test=Y[20:])
    data = load_files(tmp_path / "a.npz")
    assert data.train.x.dtype == torch.float32
    assert torch.equal(data.train.x, torch.tensor(X[:20]))
    assert torch.equal(data.test.y, torch.tensor(Y[20:]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("column", ["target", "Class", "species"])
def test_tables(tmp_path: Path, ending: str, column: str) -> None:
    frame, path = table(**{column: NAMES}), tmp_path / f"a.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    data = load_files(path, label="species" if column == "species" else None)
    check_split(data, X)
    assert data.train.x.dtype == torch.float32
    assert data.classes == ("cat", "dog", "emu")
    np.testing.assert_array_equal(np.array(data.classes)[data.train.y], NAMES[data.train.index])
    for part in (data.train, data.test, whole(data), data.test.to("cpu")):
        assert part.columns == ("a", "b", "c", "d")


def test_a_test_file_has_the_classes_of_the_training_file(tmp_path: Path) -> None:
    table(y=NAMES).to_csv(tmp_path / "train.csv", index=False)
    table(y=NAMES).query("y != 'cat'").to_csv(tmp_path / "test.csv", index=False)
    data = load_files(tmp_path / "train.csv", test=tmp_path / "test.csv")
    assert len(data.train) == 30
    assert sorted(data.test.y.unique().tolist()) == [1, 2]
    table(y=NAMES).replace("cat", "cow").to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"'cow' .*expected one of the classes 'cat', 'dog', 'emu'"):
        load_files(tmp_path / "train.csv", test=tmp_path / "test.csv")
    table(y=Y).to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"names .* numbers"):
        load_files(tmp_path / "train.csv", test=tmp_path / "test.csv")
    table(y=NAMES).drop(columns="a").to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match="test has the columns b, c, d, expected those for training: a, b, c, d"):
        load_files(tmp_path / "train.csv", test=tmp_path / "test.csv")


def test_folders_of_images(tmp_path: Path) -> None:
    write_images(tmp_path / "all")
    data, order = load_files(tmp_path / "all"), np.argsort(Y, kind="stable")  # class by class
    check_split(data, BYTES[order].transpose(0, 3, 1, 2).astype(np.float32) / 255)
    assert data.classes == ("cat", "dog", "emu")
    assert data.bounds == (0.0, 1.0)
    write_images(tmp_path / "grey", BYTES[..., 0])
    assert load_files(tmp_path / "grey").train.x.shape == (24, 1, 6, 5)
    write_images(tmp_path / "parts" / "train")
    write_images(tmp_path / "parts" / "val", BYTES[:3])
    assert (len(load_files(tmp_path / "parts").train), len(load_files(tmp_path / "parts").test)) == (30, 3)


def test_labels_of_binary_networks(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=2 * (Y > 0) - 1)
    data = load_files(tmp_path / "a.npz")
    assert data.train.x.dtype == torch.float32
    assert data.train.y.dtype == torch.float32
    assert data.classes == ()


def test_a_split_keeps_single_samples_for_training() -> None:
    train, test = split(Samples(torch.zeros(5, 1), torch.tensor([0, 1, 1, 2, 2])), 0.2, seed=0)
    assert sorted(train.y.tolist()) == [0, 1, 2]
    assert sorted(test.y.tolist()) == [1, 2]
    with pytest.raises(ValueError, match="too few"):
        split(Samples(torch.zeros(2, 1), torch.tensor([0, 1])), 0.2, seed=0)


def test_what_is_not_such_a_file_is_one_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "keys.npz", a=X, b=Y)
    np.savez(tmp_path / "objects.npz", x=np.array([{}, 1], dtype=object), y=Y[:2])
    np.savez(tmp_path / "floats.npz", x=X, y=Y + 0.5)
    np.savez(tmp_path / "negative.npz", x=X, y=Y - 2)
    (tmp_path / "torn.npz").write_bytes(b"PK")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.csv").touch()
    table(kind=NAMES).to_csv(tmp_path / "table.csv", index=False)
    table(y=Y, city="Ulm").to_csv(tmp_path / "text.csv", index=False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "half" / "cat").mkdir(parents=True)
    write_images(tmp_path / "sizes", BYTES[:2])
    write_images(tmp_path / "sizes", [BYTES[0], BYTES[1], BYTES[2][:3]])
    write_images(tmp_path / "broken", BYTES[:2])
    (tmp_path / "broken" / "cat" / "a.png").write_bytes(b"no image")
    expected = {
        "keys.npz": "has the arrays a, b, expected x and y",
        "objects.npz": "not a complete .npz file of plain arrays",
        "floats.npz": "has the labels 0.5",
        "negative.npz": "has the labels -2",
        "torn.npz": "not a complete .npz file",
        "torn.parquet": "not a complete parquet file",
        "empty.csv": "not a complete csv file",
        "table.csv": "no column called y, label, target or class among a, b, c, d, kind",
        "text.csv": "x has the column 'city'",
        "folder": "no one folder of images per class",
        "half": "half/cat has no images",
        "sizes": r"emu/002.png has 3 × 5 pixels, but .*cat/000.png has 6 × 5",
        "broken": "cat/a.png is not a complete PNG, WebP or JPEG image",
        "none.csv": "none.csv does not exist",
    }
    for name, sentence in expected.items():
        with pytest.raises((ValueError, TypeError, FileNotFoundError), match=sentence) as raised:
            load_files(tmp_path / name)
        assert "\n" not in str(raised.value)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"ending '.txt', expected .npz, .csv, .parquet or a folder"):
        load_files(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="no column 'z'"):
        load_files(tmp_path / "table.csv", label="z")


def test_names_of_own_data(tmp_path: Path) -> None:
    assert is_own("a.npz")
    assert is_own("there/")
    assert is_own(tmp_path)
    assert not is_own("digits")


def test_columns_of_test_tables_are_taken_by_name(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [5.0, 6.0, 7.0, 8.0], "y": [0, 1, 0, 1]})
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame[["b", "y", "a"]].to_csv(tmp_path / "test.csv", index=False)
    found = load_files(tmp_path / "train.csv", test=tmp_path / "test.csv")
    assert found.test.columns == ("a", "b")
    assert torch.equal(found.test.x, found.train.x)
    frame.rename(columns={"b": "c"}).to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match="test has the columns a, c, expected those for training: a, b"):
        load_files(tmp_path / "train.csv", test=tmp_path / "test.csv")


def test_arrays_for_testing_have_the_shape_of_those_for_training(tmp_path: Path) -> None:
    for name, width in (("train.npz", 4), ("test.npz", 3)):
        np.savez(tmp_path / name, x=np.ones((6, width), np.float32), y=np.arange(6) % 2)
    with pytest.raises(ValueError, match=r"\[4\] for training and \[3\] for testing"):
        load_files(tmp_path / "train.npz", test=tmp_path / "test.npz")
