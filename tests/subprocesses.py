"""Environments of processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"


def child_env(**variables: str) -> dict[str, str]:
    """The environment of this process, in which children import the package and the tests' modules uninstalled."""
    path = [str(SOURCE), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}
