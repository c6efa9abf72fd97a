from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from widemargin._io.progress import track


class Stream(IterableDataset[Tensor]):
    """A stream that does not know how long it is; a `DataLoader` over it has a `__len__` that raises."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.arange(4)


@pytest.mark.parametrize("progress", [True, False, None])
def test_every_item_once_in_order(progress: bool | None) -> None:
    assert list(track(range(5), "Counting", progress=progress)) == [0, 1, 2, 3, 4]
    assert list(track(iter("abc"), "Spelling", progress=progress)) == ["a", "b", "c"]
    assert [int(batch) for batch in track(DataLoader(Stream(), batch_size=None), "Streaming", progress=progress)] == [
        0,
        1,
        2,
        3,
    ]


def test_the_bar_is_on_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list(track(range(3), "Measuring", progress=True))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Measuring" in printed.err
    list(track(range(3), "Measuring", progress=False))
    assert capsys.readouterr() == ("", "")
    list(track(range(3), "Measuring"))  # no terminal here
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list(track(range(3), "Measuring"))
    assert "Measuring" in capsys.readouterr().err


def test_an_error_inside_comes_out() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("truncated")

    with pytest.raises(OSError, match="truncated"):
        list(track(broken(), "Reading", progress=True))
