"""Where the files of a data set may lie."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "WIDEMARGIN_DATA"


def default_root() -> Path | None:
    """The folder that the environment variable WIDEMARGIN_DATA names, or None where it is not set."""
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    root = Path(value).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"{VARIABLE} is {value!r}, which is not a folder")
    return root


def resolve(root: str | Path | None) -> Path | None:
    """`root` where it is given, else the default one."""
    if root is None:
        return default_root()
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"root is {str(root)!r}, which is not a folder")
    return folder


def folders(root: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders in `root` to search, those named after the data set first, the root itself last.

    The order matters: MNIST and Fashion-MNIST have files of the same names, so what lies in the root itself may be the
    other one's.
    """
    places = [root / name / inner for name in names for inner in ("", "raw", "data")]
    places += [root, root / "raw", root / "data"]
    return tuple(place for place in places if place.is_dir())
