"""Files of data sets: root folders, checksums, and reading plain, gzipped and tar files into memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "WIDEMARGIN_DATA"
UNVERIFIED = " (verify=False, or widemargin --no-verify, reads a subset or a changed copy)"
LARGEST = 1 << 30
"""Bytes that a file may unpack to; those of the known data sets take at most 185 MB."""


class MissingDataError(FileNotFoundError):
    """A data set that is neither in a folder nor can be downloaded."""


def default_root() -> Path | None:
    """The folder in the environment variable WIDEMARGIN_DATA, or None where it is not set."""
    value = os.environ.get(VARIABLE)
    return _folder(VARIABLE, value) if value else None


def resolve_root(root: str | Path | None) -> Path | None:
    """`root` where it is given, else the default one."""
    return default_root() if root is None else _folder("root", root)


def search_folders(root: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders in `root` to search, those named after the data set first, the root itself last.

    The order matters: MNIST and Fashion-MNIST have files of the same names, so those in the root itself may belong to
    either.
    """
    folders = [root / name / inner for name in names for inner in ("", "raw", "data")]
    folders += [root, root / "raw", root / "data"]
    return tuple(folder for folder in folders if folder.is_dir())


def files_not_found(name: str, root: Path | None, expected: str, download_error: Exception) -> MissingDataError:
    """The error that says which files of the data set `name` were expected, and why it was not downloaded."""
    where = f"{root} has no files of {name}" if root else f"{name} has no root: neither root= nor {VARIABLE} is set"
    needs_extra = isinstance(download_error, ImportError)
    download = "or pip install 'widemargin[hub]' to download it" if needs_extra else str(download_error)
    return MissingDataError(f"{where}, expected {expected}; {download}")


def check_md5(content: bytes, expected: str, source: str, cure: str = UNVERIFIED) -> None:
    """Raise a `ValueError` that names `source` and both sums unless the MD5 of `content` is the expected one.

    MD5 because the releases publish it: it detects damage and mistakes, not malice.
    """
    actual = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if actual != expected:
        raise ValueError(
            f"{source} has md5 {actual} ({len(content):,} bytes), expected {expected} as in the original release{cure}"
        )


@dataclass(frozen=True)
class File:
    """The content of a file, and its name in error messages."""

    source: str
    content: bytes


def read_files(
    folder: Path, names: tuple[str, ...], *, archive: str | None, sums: Mapping[str, str] | None
) -> dict[str, File] | None:
    """The files of these names in `folder`, each verified where `sums` is given; None where all are missing.

    A file may be named `name.gz` or, as in some copies, with `.idx` for `-idx`. Raises where some are missing. Sums are
    those of the contents: a copy may be packed anew, as Debian's packages are.
    """
    if archive is not None and (folder / archive).is_file():
        return _read_archive(folder / archive, names, sums)
    paths = {name: _find(folder, name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if len(missing) == len(names):
        return None
    if missing:
        raise FileNotFoundError(f"{folder / missing[0]} is missing, while other files of this data set exist")
    return {name: _read(path, name, sums) for name, path in paths.items() if path is not None}


def _find(folder: Path, name: str) -> Path | None:
    for spelling in (f"{name}.gz", name, name.replace("-idx", ".idx") + ".gz", name.replace("-idx", ".idx")):
        if (folder / spelling).is_file():
            return folder / spelling
    return None


def _read(path: Path, name: str, sums: Mapping[str, str] | None) -> File:
    content, unpacked = path.read_bytes(), ""
    if path.suffix == ".gz":
        try:
            with gzip.open(io.BytesIO(content)) as opened:
                content, unpacked = opened.read(LARGEST + 1), ", unpacked,"
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip file: {error}") from error
        _check_size(path, len(content))
    if sums is not None:
        check_md5(content, sums[name], f"{path}{unpacked}")
    return File(str(path), content)


def _read_archive(path: Path, names: tuple[str, ...], sums: Mapping[str, str] | None) -> dict[str, File]:
    files: dict[str, File] = {}
    try:
        with tarfile.open(path, mode="r:*") as archive:
            for member in archive:
                _check_size(path, member.offset_data + member.size)  # before anything is unpacked to get there
                name = member.name.rsplit("/", 1)[-1]
                if name not in names:
                    continue
                if not member.isfile():
                    raise ValueError(f"{path} has {member.name!r} as a link or a folder, expected a file")
                opened = archive.extractfile(member)
                assert opened is not None
                files[name] = File(f"{path}/{member.name}", opened.read())
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete tar file: {error}") from error
    for name in names:
        if name not in files:
            raise FileNotFoundError(f"{name} is missing in {path}")
        if sums is not None:
            check_md5(files[name].content, sums[name], files[name].source)
    return files


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST:
        raise ValueError(f"{path} unpacks to more than {LARGEST >> 20} MiB, expected the files of a data set")


def _folder(name: str, value: str | Path) -> Path:
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{name} is {str(value)!r}, which is not a folder")
    return folder
