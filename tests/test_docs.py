"""What the pages say is true: their code runs, their links lead somewhere, and the tree of the README is the tree."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every python block of a page, top to bottom, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for line, language, text in blocks(page.read_text()):
            if language == "python":
                exec(compile("\n" * line + text, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    for target in links(page.read_text()):
        assert (page.parent / target).exists(), f"{page_name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^\s*make ([a-z-]+)|`make ([a-z-]+)`", page.read_text(), re.MULTILINE))
    assert {first or second for first, second in named} <= targets


def test_the_readme_has_one_example_of_ten_lines() -> None:
    examples = [text for _, language, text in blocks((ROOT / "README.md").read_text()) if language == "python"]
    assert len(examples) == 1
    assert len([line for line in examples[0].splitlines() if line.strip()]) <= 10


def test_the_readme_tree_is_the_tree() -> None:
    """Each entry exists, and each room of the package is an entry."""
    entries = set(tree((ROOT / "README.md").read_text()))
    assert [entry for entry in sorted(entries) if not (ROOT / entry).exists()] == []
    package = ROOT / "src" / "widemargin"
    rooms = {path for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    missing = {str(path.relative_to(ROOT)) for path in rooms} - entries
    assert not missing, "add them, with a few words each, to the tree in README.md"


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert sorted(pages_of(nav)) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_blocks_links_and_trees_are_found() -> None:
    page = (
        "a [x](y.md#z), [w](https://x.org), `[n](o.md)`, [h](#here)\n\n"
        "```python\na = 1\n```\n\n"
        "- b\n\n  ```text\n  src/\n    a.py  what\n    b/    what\n      c.py\n  d.md\n  ```\n"
    )
    drawn = "src/\n  a.py  what\n  b/    what\n    c.py\nd.md\n"
    assert list(blocks(page)) == [(3, "python", "a = 1\n"), (9, "text", drawn)]
    assert list(links(page)) == ["y.md"]
    assert list(tree(page)) == ["src", "src/a.py", "src/b", "src/b/c.py", "d.md"]
    assert list(pages_of([{"A": "a.md"}, {"B": [{"C": "c.md"}, "d.md"]}])) == ["a.md", "c.md", "d.md"]


def blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """(number of lines before it, language, dedented text) of each fenced block."""
    for match in re.finditer(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        indent, language, inner = match.groups()
        lines = (line.removeprefix(indent) for line in inner.splitlines(keepends=True))
        yield text.count("\n", 0, match.start(3)), language, "".join(lines)


def links(text: str) -> Iterator[str]:
    """The relative targets of the page's links, code left out, without their anchors."""
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path = target.partition("#")[0]
        if path and not re.match(r"[a-z]+:", path):
            yield path


def tree(text: str) -> Iterator[str]:
    """The entries of the first text block, a name per line with its folder above it, as paths from the root."""
    block = next(inner for _, language, inner in blocks(text) if language == "text")
    above: list[tuple[int, str]] = []
    for line in block.splitlines():
        depth = len(line) - len(line.lstrip())
        above = [folder for folder in above if folder[0] < depth]
        name = line.split()[0]
        yield "/".join([*(folder.rstrip("/") for _, folder in above), name.rstrip("/")])
        if name.endswith("/"):
            above.append((depth, name))


def pages_of(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else pages_of(value)
