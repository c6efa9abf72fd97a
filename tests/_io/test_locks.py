"""Locks that end with their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from subprocesses import child_env
from widemargin._io.locks import Claims, locked_folder

KEYS = [f"{number:064x}" for number in (1 << 250, 3 << 250)]


def holder(code: str) -> subprocess.Popen[str]:
    """A process that runs `code`, says so, and waits."""
    text = f"from pathlib import Path\nfrom widemargin._io.locks import *\n{code}\nprint('held', flush=True)\ninput()\n"
    command = [sys.executable, "-c", text]
    child = subprocess.Popen(command, env=child_env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def ended(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    for stream in (child.stdin, child.stdout):
        assert stream is not None
        stream.close()


def test_a_folder_has_one_holder_and_the_error_names_it(tmp_path: Path) -> None:
    child = holder(f"lock = locked_folder('checkpoint', Path({str(tmp_path)!r})); lock.__enter__()")
    try:
        with (
            pytest.raises(BlockingIOError, match=rf"checkpoint is .*process {child.pid} on .*since"),
            locked_folder("checkpoint", tmp_path),
        ):
            pass
    finally:
        ended(child)
    with locked_folder("checkpoint", tmp_path):  # it was killed, and its lock with it
        with pytest.raises(BlockingIOError, match=f"process {os.getpid()}"), locked_folder("checkpoint", tmp_path):
            pass
        assert (tmp_path / ".lock").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_does_not_keep_the_folder(tmp_path: Path) -> None:
    """As the workers of a DataLoader do: they outlive a killed training for a while."""
    read, write = os.pipe()
    code = f"""
import os, time
lock = locked_folder('checkpoint', Path({str(tmp_path)!r})); lock.__enter__()
if not os.fork():
    os.write(1, b'held\\n')  # said by the new process, which has closed the file by now
    os.close(0), os.close(1)
    os.read({read}, 1)
    os._exit(0)
"""
    text = f"from pathlib import Path\nfrom widemargin._io.locks import *\n{code}\ninput()\n"
    command = [sys.executable, "-c", text]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, env=child_env(), stdin=pipe, stdout=pipe, text=True, pass_fds=(read,))
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    ended(child)
    try:
        with locked_folder("checkpoint", tmp_path):
            pass
    finally:
        os.close(write)
        os.close(read)


def test_a_part_has_one_holder_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "E3.lock"
    child = holder(f"claims = Claims(Path({str(path)!r})); assert claims.take({KEYS[0]!r})")
    claims = Claims(path)
    try:
        assert not claims.take(KEYS[0])
        assert claims.take(KEYS[1])
        assert claims.take(KEYS[1])
    finally:
        ended(child)
    assert claims.take(KEYS[0])
    claims.close()
