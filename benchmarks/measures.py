"""Measures of the source: size, types, functions, copies, public names and the files of a training step.

    python benchmarks/measures.py

docs/project/design.md has the table.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "widemargin"
COPIED = 6  # lines of code


def main() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    texts = {path: path.read_text() for path in files}
    lines, name = max((n, f"{p.relative_to(SOURCE)}:{f}") for p, t in texts.items() for f, n in functions(t))
    longest, file = max((text.count("\n"), str(path.relative_to(SOURCE))) for path, text in texts.items())
    copies = list(copied_blocks(texts))
    print("files", len(files))
    print("lines", sum(text.count("\n") for text in texts.values()))
    print("Any", sum(len(re.findall(r"\bAny\b", text)) for text in texts.values()))
    print("longest file", longest, file)
    print("longest function, lines of code", lines, name)
    print("functions over 60 lines of code", sum(n > 60 for t in texts.values() for _, n in functions(t)))
    print("copied blocks", len(copies), *copies, sep="\n  " if copies else " ")
    print("class names used twice", *repeated_classes(texts))
    print("public names", sum(map(len, public_names().values())))
    for label, seen in fit_walks().items():
        print(f"files in {label}", len(seen), *seen)


def code_lines(text: str) -> list[tuple[int, str]]:
    """(Number, stripped text) of each line of code: no blank lines, comments, docstrings or imports."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            skipped.add(token.start[0])
    numbered = enumerate(text.splitlines(), start=1)
    return [(number, line.strip()) for number, line in numbered if line.strip() and number not in skipped]


def functions(text: str) -> Iterator[tuple[str, int]]:
    """(Name, lines of code) of the body of each function, nested functions included in their parents."""
    numbers = [number for number, _ in code_lines(text)]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield node.name, sum(node.body[0].lineno <= number <= (node.end_lineno or 0) for number in numbers)


def copied_blocks(texts: dict[Path, str]) -> Iterator[str]:
    """Pairs of places with at least six equal lines of code that hold a statement each, brackets not counted."""
    windows: dict[tuple[str, ...], list[tuple[Path, int, int]]] = defaultdict(list)
    for path, text in texts.items():
        lines = [(number, line) for number, line in code_lines(text) if re.search(r"\w", line)]
        for start in range(len(lines) - COPIED + 1):
            window = lines[start : start + COPIED]
            windows[tuple(line for _, line in window)].append((path, start, window[0][0]))
    seen: set[tuple[Path, int, Path, int]] = set()
    for lines_of, places in windows.items():
        for one, other in ((a, b) for i, a in enumerate(places) for b in places[i + 1 :] if len(set(lines_of)) > 3):
            seen.add((one[0], one[1], other[0], other[1]))
            if (one[0], one[1] - 1, other[0], other[1] - 1) not in seen:
                yield f"{one[0].relative_to(SOURCE)}:{one[2]} {other[0].relative_to(SOURCE)}:{other[2]}"


def repeated_classes(texts: dict[Path, str]) -> list[str]:
    found: dict[str, int] = defaultdict(int)
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found[node.name] += 1
    return sorted(name for name, count in found.items() if count > 1)


def public_names() -> dict[str, list[str]]:
    """`__all__` of the package and of each public package."""
    packages = [path.parent.name for path in SOURCE.glob("[!_]*/__init__.py")]
    modules = [importlib.import_module(name) for name in ("widemargin", *(f"widemargin.{p}" for p in packages))]
    return {module.__name__: list(getattr(module, "__all__", ())) for module in modules}


def fit_walks() -> dict[str, list[str]]:
    """The files whose code runs in one training step of a margin loss, and in a whole `fit`."""
    import torch

    import widemargin as wm

    few = wm.data.subset(wm.data.load("digits").train, count=120, seed=0)
    loss = wm.losses.large_margin(gamma=1.0, classes=1)
    seen: set[str] = set()
    steps = iter(range(1000))

    def record(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(SOURCE)) and frame.f_code.co_name != "<module>":
            seen.add(os.path.relpath(file, SOURCE))

    class Recorded(torch.optim.SGD):
        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            result = super().step(closure)
            step = next(steps)
            if step == 1:
                sys.setprofile(record)
            elif step == 2:
                sys.setprofile(None)
            return result

    def train(optimizer: Callable[..., torch.optim.Optimizer], *, whole: bool) -> None:
        model = wm.models.mnist_cnn(size=8, widths=(4, 8), hidden=(16,))
        sys.setprofile(record if whole else None)
        wm.fit(model, few, loss=loss, epochs=1, batch_size=30, optimizer=partial(optimizer, lr=0.01))
        sys.setprofile(None)

    train(Recorded, whole=False)
    walks = {"a training step": sorted(seen)}
    seen.clear()
    train(torch.optim.SGD, whole=True)
    return {**walks, "a whole fit": sorted(seen)}


if __name__ == "__main__":
    main()
