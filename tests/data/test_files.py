from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from data.synthetic import tar_bytes, write
from widemargin.data import files
from widemargin.data.files import default_root, read_files, resolve_root, search_folders

CONTENTS = {"a-idx1": b"first", "b-idx1": b"second"}
NAMES = tuple(CONTENTS)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def contents(folder: Path, sums: dict[str, str] | None = None, archive: str | None = None) -> dict[str, bytes] | None:
    found = read_files(folder, NAMES, archive=archive, sums=sums)
    return None if found is None else {name: file.content for name, file in found.items()}


def test_plain_zipped_and_otherwise_spelled(tmp_path: Path) -> None:
    assert contents(tmp_path) is None
    write(tmp_path, {"a.idx1": b"first", "b.idx1": b"second"})
    assert contents(tmp_path) == CONTENTS
    write(tmp_path, {"a-idx1": b"FIRST"}, zipped=True)
    assert contents(tmp_path) == CONTENTS | {"a-idx1": b"FIRST"}


@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_sum_is_of_the_content_however_it_is_packed(tmp_path: Path, level: int) -> None:
    plain = {name: md5(content) for name, content in CONTENTS.items()}
    (tmp_path / "a-idx1.gz").write_bytes(gzip.compress(b"first", compresslevel=level, mtime=level))
    write(tmp_path, {"b-idx1": b"second"})
    assert contents(tmp_path, plain) == CONTENTS
    with pytest.raises(ValueError, match=rf"{tmp_path}/a-idx1\.gz, unpacked, .*{md5(b'first')} .*--no-verify"):
        contents(tmp_path, plain | {"a-idx1": "0" * 32})


def test_a_wrong_sum_names_the_file_and_both_sums(tmp_path: Path) -> None:
    write(tmp_path, CONTENTS)
    sums = {"a-idx1": md5(b"first"), "b-idx1": "0" * 32}
    with pytest.raises(ValueError, match=rf"{tmp_path}/b-idx1 .*{md5(b'second')} .*{'0' * 32}"):
        contents(tmp_path, sums)
    assert contents(tmp_path) == CONTENTS


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"a-idx1": b"first"})
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/b-idx1 is missing"):
        contents(tmp_path)


@pytest.mark.parametrize(
    "broken",
    [gzip.compress(bytes(1000))[:-4], b"not gzip", gzip.compress(bytes(99))[:12] + b"?"],
    ids=["cut", "text", "torn"],
)
def test_a_broken_gzip_file_is_named(tmp_path: Path, broken: bytes) -> None:
    write(tmp_path, CONTENTS)
    (tmp_path / "a-idx1.gz").write_bytes(broken)
    with pytest.raises(ValueError, match=f"{tmp_path}/a-idx1.gz is not"):
        contents(tmp_path)


def test_an_archive_is_read_in_place(tmp_path: Path) -> None:
    packed = tar_bytes(CONTENTS | {"readme.html": b"more"})
    (tmp_path / "all.tar.gz").write_bytes(packed)
    plain = {name: md5(content) for name, content in CONTENTS.items()}
    assert contents(tmp_path, plain, "all.tar.gz") == CONTENTS
    assert [path.name for path in tmp_path.iterdir()] == ["all.tar.gz"]
    with pytest.raises(ValueError, match=rf"all\.tar\.gz/.*b-idx1 has .*{md5(b'second')}"):
        contents(tmp_path, plain | {"b-idx1": "0"}, "all.tar.gz")


@pytest.mark.parametrize(
    "broken", [tar_bytes({"a-idx1": bytes(9999)})[:60], b"", b"not a tar file"], ids=["cut", "empty", "text"]
)
def test_a_broken_archive_is_named(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "all.tar.gz").write_bytes(broken)
    with pytest.raises(ValueError, match=r"all\.tar\.gz is not"):
        contents(tmp_path, None, "all.tar.gz")


def test_a_file_missing_in_an_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "all.tar.gz").write_bytes(tar_bytes({"a-idx1": b"first"}))
    with pytest.raises(FileNotFoundError, match=rf"b-idx1 is missing in {tmp_path}/all\.tar\.gz"):
        contents(tmp_path, None, "all.tar.gz")


def test_an_argument_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_root() is None
    assert resolve_root(None) is None
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path / "a"))
    assert default_root() == resolve_root(None) == tmp_path / "a"
    assert resolve_root(str(tmp_path)) == resolve_root(tmp_path) == tmp_path
    monkeypatch.setenv("WIDEMARGIN_DATA", "")
    assert default_root() is None


def test_a_root_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=f"root is '{tmp_path}/no'"):
        resolve_root(tmp_path / "no")
    monkeypatch.setenv("WIDEMARGIN_DATA", f"{tmp_path}/no")
    with pytest.raises(FileNotFoundError, match=f"WIDEMARGIN_DATA is '{tmp_path}/no'"):
        resolve_root(None)


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_root("~") == tmp_path


def test_the_folder_of_the_data_set_before_the_root(tmp_path: Path) -> None:
    (tmp_path / "set" / "raw").mkdir(parents=True)
    assert search_folders(tmp_path, ("set", "other")) == (tmp_path / "set", tmp_path / "set" / "raw", tmp_path)


def archive_of(path: Path, **members: bytes | str) -> None:
    """A tar file with these contents; a text is the target of a symlink."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"folder/{name.replace('_', '-')}")
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("target", ["/etc/passwd", "other", "../../x"])
def test_links_in_an_archive_are_refused(target: str, tmp_path: Path) -> None:
    archive_of(tmp_path / "all.tar.gz", other=b"secret", a_idx1=target, b_idx1=b"second")
    with pytest.raises(ValueError, match=r"all\.tar\.gz has 'folder/a-idx1' as a link"):
        contents(tmp_path, archive="all.tar.gz")


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    bomb = bytes(1 << 22)
    write(tmp_path, {"a-idx1": bomb, "b-idx1": b"second"}, zipped=True)
    with pytest.raises(ValueError, match=r"a-idx1\.gz unpacks to more than 1 MiB"):
        contents(tmp_path)
    for members in ({"a_idx1": bomb, "b_idx1": b"second"}, {"other": bomb, "a_idx1": b"first", "b_idx1": b"second"}):
        archive_of(tmp_path / "all.tar.gz", **members)
        with pytest.raises(ValueError, match=r"all\.tar\.gz unpacks to more than 1 MiB"):
            contents(tmp_path, archive="all.tar.gz")
