"""The pages: their code runs, their links lead somewhere, and the reference holds every public name."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import widemargin

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
REFERENCE = DOCS / "reference"
WIDEST = 88  # characters of code that the page shows without scrolling sideways


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*log_every_n_steps", "ignore:.*LeafSpec"
)  # of Lightning
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
def test_no_table_is_inside_a_list(page: Path) -> None:
    """The site ends a list there, and runs the rest of it together into one paragraph."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^[ \t]+\|.*", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^\s*make ([a-z-]+)|`make ([a-z-]+)`", page.read_text(), re.MULTILINE))
    assert {first or second for first, second in named} <= targets


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_code_fits_the_page(page: Path) -> None:
    lines = [line for _, _, text in blocks(page.read_text()) for line in text.splitlines()]
    assert [line for line in lines if len(line) > WIDEST] == []


def test_every_public_name_has_a_reference_page() -> None:
    """Each package of `widemargin.__all__` has a page, and each exported module a directive on it."""
    assert [name for name in public_names() if not is_documented(name)] == []


@pytest.mark.skipif(find_spec("mkdocstrings_handlers") is None, reason="needs the extra docs")
def test_every_public_name_is_in_the_built_reference(tmp_path: Path) -> None:
    """The site is built with broken links as errors, and each public name has an anchor on it."""
    settings = tmp_path / "zensical.toml"
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    settings.write_text((ROOT / "zensical.toml").read_text())
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    html = "".join(page.read_text() for page in (tmp_path / "site" / "reference").glob("*.html"))
    missing = [name for name in public_names() if f'id="{name}"' not in html and name not in directives()]
    assert missing == [], "a public name without a docstring is not rendered"


def test_the_readme_has_one_example_of_ten_lines() -> None:
    examples = [text for _, language, text in blocks((ROOT / "README.md").read_text()) if language == "python"]
    assert len(examples) == 1
    assert len([line for line in examples[0].splitlines() if line.strip()]) <= 10


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readme_tree_is_the_tree() -> None:
    """Each entry exists, and each module and package at the top is an entry."""
    entries = set(tree((ROOT / "README.md").read_text()))
    assert [entry for entry in sorted(entries) if not (ROOT / entry).exists()] == []
    package = ROOT / "src" / "widemargin"
    modules = {path for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    missing = {str(path.relative_to(ROOT)) for path in modules} - entries
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


def public_names() -> list[str]:
    """The names in `__all__` of the package and of every public package in it."""
    return [f"{module.__name__}.{name}" for module in public_modules() for name in names_of(module)]


def public_modules() -> Iterator[ModuleType]:
    """`widemargin` and the packages that have a reference page."""
    yield widemargin
    for page in sorted(REFERENCE.glob("[!i]*.md")):
        yield importlib.import_module(f"widemargin.{page.stem}")


def names_of(module: ModuleType) -> list[str]:
    return [name for name in getattr(module, "__all__", ()) if not name.startswith("__")]


def is_documented(name: str) -> bool:
    """Whether a directive covers this name: a module needs its own, other names that of their package."""
    package, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(package), last)
    if isinstance(value, ModuleType):
        return value.__name__ in directives()
    is_code = inspect.isroutine(value) or inspect.isclass(value)
    return package in directives() and (not is_code or bool(value.__doc__))


def directives() -> set[str]:
    """What the reference pages ask mkdocstrings for."""
    pages = (page.read_text() for page in REFERENCE.glob("*.md"))
    return {name for text in pages for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)}


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
