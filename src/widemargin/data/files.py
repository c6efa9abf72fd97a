"""Reading the original files of a release into memory: plain, gzipped, or inside one tar file; nothing is unpacked."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from widemargin.data.checksums import check_md5


@dataclass(frozen=True)
class File:
    """The content of a file, and what to call it in a sentence."""

    source: str
    content: bytes


def read_files(
    folder: Path, names: tuple[str, ...], *, archive: str | None, sums: Mapping[str, str] | None
) -> dict[str, File] | None:
    """The files of these names in `folder`, each verified where `sums` is given; None where there is none of them.

    A file may be there as `name.gz` or, as some copies have it, with `.idx` for `-idx`. Some but not all of them is an
    error that names the missing one.
    """
    if archive is not None and (folder / archive).is_file():
        return _read_archive(folder / archive, names, sums)
    paths = {name: _find(folder, name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if len(missing) == len(names):
        return None
    if missing:
        raise FileNotFoundError(f"{folder / missing[0]} is missing, while other files of this data set are there")
    return {name: _read(path, name, sums) for name, path in paths.items() if path is not None}


def _find(folder: Path, name: str) -> Path | None:
    for spelling in (f"{name}.gz", name, name.replace("-idx", ".idx") + ".gz", name.replace("-idx", ".idx")):
        if (folder / spelling).is_file():
            return folder / spelling
    return None


def _read(path: Path, name: str, sums: Mapping[str, str] | None) -> File:
    content = path.read_bytes()
    zipped = path.suffix == ".gz"
    if sums is not None:
        check_md5(content, sums[f"{name}.gz" if zipped else name], str(path))
    if zipped:
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file: {error}") from error
    return File(str(path), content)


def _read_archive(path: Path, names: tuple[str, ...], sums: Mapping[str, str] | None) -> dict[str, File]:
    content = path.read_bytes()
    if sums is not None:
        check_md5(content, sums[path.name], str(path))
    found: dict[str, File] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                opened = archive.extractfile(member) if name in names else None
                if opened is not None:
                    found[name] = File(f"{path}/{member.name}", opened.read())
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole tar file: {error}") from error
    for name in names:
        if name not in found:
            raise FileNotFoundError(f"{name} is missing in {path}")
    return found
