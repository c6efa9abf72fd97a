"""Your own files as data sets: arrays (.npz), tables (.csv, .parquet), and folders of images by class."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widemargin._io.optional import import_optional
from widemargin.checks import check_number, check_seed
from widemargin.data.images import decode_image, image_channels
from widemargin.data.reading import read_inputs, read_labels, read_pair
from widemargin.data.samples import Data, Samples
from widemargin.data.seeds import generator

TABLES = (".csv", ".parquet")
ENDINGS = (".npz", *TABLES)
IMAGES = (".png", ".jpg", ".jpeg", ".webp")
INPUT_KEYS = ("x", "X", "data", "images", "inputs", "features")
LABEL_KEYS = ("y", "label", "labels", "target", "targets", "class")


def is_own(source: str | Path) -> bool:
    """Whether `source` names a file of these types, or a folder."""
    return str(source).lower().endswith(ENDINGS) or str(source).endswith(("/", os.sep)) or Path(source).is_dir()


def load_files(
    source: str | Path,
    *,
    test: str | Path | None = None,
    label: str | None = None,
    share: float | int = 0.2,
    seed: int = 0,
) -> Data:
    """The data set of a file or folder, with a test part: `test`, or a `share` of each class drawn by `seed`.

    - `.npz`: arrays `x` and `y` (or `images`, `labels`, …), or `x_train`, `y_train`, `x_test` and `y_test`. No pickle
      is loaded.
    - `.csv`, `.parquet`: a table; the column `label` (by default one called y, label, target or class) has the labels,
      all others are inputs.
    - a folder: images, in one folder per class; or `train` and `test` (or `val`), each with such folders.

    Bytes are scaled to [0, 1], and images of bytes have their channels first. Labels that are texts become indices in
    sorted order. `index` of both parts are positions in the file: rows of an array or of a table, images in the order
    of their paths.
    """
    check_number("share", share, above=0.0, below=1.0)
    check_seed(seed)
    path = Path(source).expanduser()
    if label is not None and path.suffix.lower() not in TABLES:
        raise ValueError(f"label is {label!r}, a column of a table, but {path} is no .csv or .parquet file")
    parts = _read(path, label)
    if test is not None:
        parts = {"train": _whole(parts, path), "test": _whole(_read(Path(test).expanduser(), label), Path(test))}
    if len(parts) == 1:
        train, held_out = split(next(iter(parts.values())), share, seed)
    else:
        train, held_out = parts["train"], parts["test"]
    train, held_out = with_same_classes(train, held_out)
    held_out = _with_columns(held_out, train.columns)
    if train.x.shape[1:] != held_out.x.shape[1:]:
        shapes = f"{list(train.x.shape[1:])} for training and {list(held_out.x.shape[1:])} for testing"
        raise ValueError(f"{path} has inputs of shape {shapes}, expected the same")
    bounds = (0.0, 1.0) if _are_images(train.x) and float(train.x.min()) >= 0 and float(train.x.max()) <= 1 else None
    return Data(path.name, train, held_out, class_names(train, held_out), bounds)


def split(samples: Samples, share: float | int, seed: int) -> tuple[Samples, Samples]:
    """`(train, test)`: of every class round(`share`·n) samples for testing, at least one of two; in their order."""
    order = torch.randperm(len(samples), generator=generator("split", seed))
    labels = samples.y.cpu()[order]
    chosen: list[Tensor] = []
    for label in labels.unique():
        members = order[labels == label]
        chosen.append(members[: max(round(share * len(members)), min(1, len(members) - 1))])
    test = torch.cat(chosen).sort().values
    if not 0 < len(test) < len(samples):
        raise ValueError(f"data has {len(samples)} samples, too few for a test part of {share:g}: expected more")
    rest = torch.ones(len(samples), dtype=torch.bool).index_fill(0, test, False).nonzero()[:, 0]
    return samples.select(rest), samples.select(test)


def whole(data: Data) -> Samples:
    """Both parts of `data` as one, in the order of their file where they have positions in it."""
    parts = (data.train, data.test)
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    known = [part.index for part in parts if part.index is not None]
    joint = replace(data.train, x=x, y=y, index=None)
    if len(known) < 2:
        return joint
    index = torch.cat(known)
    if len(index.unique()) < len(index):  # of two files
        return joint
    order = index.argsort()
    return replace(joint, x=x[order], y=y[order], index=index[order])


def class_names(*parts: Samples) -> tuple[str, ...]:
    """The names of the classes, or their numbers; empty for labels −1 and 1."""
    if parts[0].classes:
        return parts[0].classes
    if parts[0].y.is_floating_point():
        return ()
    return tuple(str(label) for label in range(1 + max(int(part.y.max()) for part in parts)))


def _with_columns(test: Samples, columns: tuple[str, ...]) -> Samples:
    """The samples of a table with its columns in the order of `columns`; raises where they are others."""
    if not columns or not test.columns or test.columns == columns:
        return test
    if sorted(test.columns) != sorted(columns):
        found, wanted = (", ".join(names) for names in (test.columns, columns))
        raise ValueError(f"test has the columns {found}, expected those for training: {wanted}")
    order = [test.columns.index(name) for name in columns]
    return replace(test, x=test.x[:, order], columns=columns)


def _read(path: Path, label: str | None) -> dict[str, Samples]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir():
        return _folder(path)
    if path.suffix.lower() == ".npz":
        return _arrays(path)
    if path.suffix.lower() in TABLES:
        return {"all": _table(path, label)}
    raise ValueError(f"{path} has the ending {path.suffix!r}, expected {', '.join(ENDINGS)} or a folder of images")


def _arrays(path: Path) -> dict[str, Samples]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a complete .npz file of plain arrays: {error}") from error
    names = {f"{kind}_{part}" for kind in "xy" for part in ("train", "test")}
    if names <= arrays.keys():
        return {p: _images(arrays[f"x_{p}"], arrays[f"y_{p}"], path) for p in ("train", "test")}
    x, y = (next((key for key in keys if key in arrays), None) for keys in (INPUT_KEYS, LABEL_KEYS))
    if x is None or y is None:
        raise ValueError(
            f"{path} has the arrays {', '.join(arrays) or 'none'}, expected x and y, or x_train, y_train, x_test and "
            "y_test"
        )
    return {"all": _images(arrays[x], arrays[y], path)}


def _images(x: np.ndarray, y: np.ndarray, path: Path) -> Samples:
    """Samples of arrays; bytes become numbers in [0, 1], with channels first."""
    inputs = read_inputs(x, f"x of {path}")
    if inputs.dtype == torch.uint8:
        inputs = inputs.float() / 255
        if inputs.ndim == 3:
            inputs = inputs[:, None]
        elif inputs.ndim == 4 and inputs.shape[3] in (1, 3) and inputs.shape[1] not in (1, 3):
            inputs = inputs.permute(0, 3, 1, 2).contiguous()
    elif inputs.is_floating_point():
        inputs = inputs.float()
    labels, classes = read_labels(y, name=f"y of {path}")
    return _labelled(Samples(inputs, labels, classes=classes), path)


def _table(path: Path, label: str | None) -> Samples:
    pandas = import_optional("pandas", f"reading {path.name}")
    try:
        frame: Any = pandas.read_csv(path) if path.suffix.lower() == ".csv" else pandas.read_parquet(path)
    except (ValueError, OSError, pandas.errors.ParserError) as error:
        raise ValueError(f"{path} is not a complete {path.suffix[1:]} file: {error}") from error
    columns = list(map(str, frame.columns))
    if label is None:
        label = next((name for name in columns if name.lower() in LABEL_KEYS), None)
    if label not in columns:
        asked = "no column called y, label, target or class" if label is None else f"no column {label!r}"
        raise ValueError(f"{path} has {asked} among {', '.join(columns)}, expected the name of the column of labels")
    frame.columns = columns
    samples = read_pair(frame.drop(columns=label), frame[label])
    return _labelled(replace(samples, x=samples.x.float()), path)


def _folder(path: Path) -> dict[str, Samples]:
    inner = {part: path / part for part in ("train", "test", "val", "validation") if (path / part).is_dir()}
    if "train" in inner and len(inner) > 1:
        held_out = next(inner[part] for part in ("test", "val", "validation") if part in inner)
        return {"train": _by_class(inner["train"]), "test": _by_class(held_out)}
    return {"all": _by_class(path)}


def _by_class(folder: Path) -> Samples:
    """The images of one folder per class, in the order of their paths."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [
        (label, path)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in IMAGES
    ]
    empty = sorted(set(range(len(classes))) - {label for label, _ in files})
    if not classes or empty:
        which = folder / classes[empty[0]] if classes else folder
        expected = "images (.png, .jpg or .webp)" if classes else "one folder of images per class"
        raise FileNotFoundError(f"{which} has no {expected}")
    contents = [path.read_bytes() for _, path in files]
    channels = max(image_channels(content, str(path)) for content, (_, path) in zip(contents, files))
    images = [decode_image(content, channels, str(path)) for content, (_, path) in zip(contents, files)]
    for image, (_, path) in zip(images, files):
        if image.shape != images[0].shape:
            first, other = (" × ".join(map(str, one.shape[1:])) for one in (images[0], image))
            raise ValueError(f"{path} has {other} pixels, but {files[0][1]} has {first}: resize them to one size")
    x = torch.from_numpy(np.stack(images)).float() / 255
    return Samples(x, torch.tensor([label for label, _ in files]), classes=tuple(classes))


def _labelled(samples: Samples, path: Path) -> Samples:
    """The samples, with labels −1 and 1 as floats; raises where labels are no class indices."""
    y = samples.y
    values = y.unique().tolist()
    if values == [-1, 1]:
        return replace(samples, y=y.float())
    if y.is_floating_point() or values[0] < 0:
        shown = ", ".join(f"{value:g}" for value in values[:5])
        raise ValueError(f"{path} has the labels {shown}, expected class indices from 0 on, names, or -1 and 1")
    return samples


def with_same_classes(train: Samples, test: Samples) -> tuple[Samples, Samples]:
    """Both parts with the classes of the training part."""
    if train.classes == test.classes:
        return train, test
    if not train.classes or not test.classes:
        raise ValueError("the labels of one part are names and those of the other are numbers, expected the same kind")
    names = [test.classes[label] for label in test.y.tolist()]
    labels, classes = read_labels(names, classes=train.classes, name="y for testing")
    return train, replace(test, y=labels, classes=classes)


def _whole(parts: dict[str, Samples], path: Path) -> Samples:
    if len(parts) > 1:
        raise ValueError(f"{path} has training and test samples already, expected one of them beside a test file")
    return next(iter(parts.values()))


def _are_images(x: Tensor) -> bool:
    return x.ndim == 4 and x.shape[1] in (1, 3)
