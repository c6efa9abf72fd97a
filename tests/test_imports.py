"""Imports go one way (docs/project/design.md), and `import widemargin` stays cheap."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import widemargin

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "widemargin"

# The layers of the design, from the bottom up. Packages import from their own layer or below; no cycles.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "types",
        "checks",
        "norms",
        "modules",
        "probabilities",
        "embeddings",
        "places",
        "entry_checks",
        "layers",
        "_autograd",
        "_cuda",
        "_io",
    ),
    ("margins",),
    ("split_backward",),
    ("losses", "regularizers", "optim", "attacks", "geometry", "gp"),
    ("certify", "bounds"),
    ("training",),
    ("population",),
    ("control", "diagnostics"),
    ("registry",),
    ("integrations",),
    ("studies",),
    ("cli",),
    ("__init__", "__main__"),
)
# Packages beside the layers: what they may import, and the lowest layer that may import them.
BESIDE: dict[str, tuple[set[str], str]] = {
    "data": ({"types", "checks", "modules", "_io"}, "margins"),
    "models": ({"types", "checks", "modules", "_io"}, "training"),
    "report": ({"_io"}, "margins"),
}
LAYER = {package: height for height, packages in enumerate(LAYERS) for package in packages}

Graph = dict[str, set[str]]  # module -> the modules it imports, both by their full dotted names


def test_packages_keep_the_order_of_the_design() -> None:
    assert violations(imports_of(SOURCE)) == []


def test_report_never_reaches_torch() -> None:
    graph = imports_of(SOURCE)
    for module in graph:
        if package_of(module) == "report":
            assert "torch" not in {name.split(".")[0] for name in reach(graph, module)}, module


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"norms.py": "from widemargin.margins import output"}, "norms imports margins"),
        ({"norms.py": "def f():\n    from .margins import output"}, "norms imports margins"),
        ({"margins/output.py": "from ..cli import main"}, "margins imports cli"),
        ({"data/load.py": "from widemargin import norms"}, "data imports norms"),
        ({"places.py": "from widemargin.data import load"}, "places imports data"),
        ({"report/page.py": "import widemargin.types"}, "report imports types"),
        ({"norms.py": "import widemargin as wm"}, "norms imports __init__"),
        ({"norms.py": "from widemargin import measure"}, "norms imports __init__"),
        ({"gp/a.py": "import importlib\nimportlib.import_module('widemargin.control')"}, "gp imports control"),
        ({"norms.py": "from widemargin import places", "places.py": "from widemargin import norms"}, "a cycle"),
        ({"utils.py": ""}, "utils has no layer"),
    ],
)
def test_a_breach_of_the_order_is_seen(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    found = violations(imports_of(package(tmp_path, files)))
    assert len(found) == 1
    assert expected in found[0]


def test_what_the_order_allows_passes(tmp_path: Path) -> None:
    files = {
        "norms.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from widemargin.cli import main",
        "margins/a.py": "import torch\nfrom widemargin import data, norms\nfrom . import b\nfrom .b import c",
        "margins/b.py": "from widemargin.types import Scores",
        "cli.py": "from widemargin import __version__\nfrom widemargin.margins.a import f\nimport widemargin.report",
    }
    assert violations(imports_of(package(tmp_path, files))) == []


def test_reach_follows_packages_and_functions(tmp_path: Path) -> None:
    files = {
        "report/page.py": "def f():\n    from widemargin.studies.schema import g",
        "studies/__init__.py": "import torch.nn",
        "studies/schema.py": "",
    }
    assert "torch.nn" in reach(imports_of(package(tmp_path, files)), "widemargin.report.page")


def test_import_widemargin_imports_nothing_heavy() -> None:
    light = {"widemargin", *sys.stdlib_module_names}
    fresh = "import sys; before = set(sys.modules); import widemargin; print(*(set(sys.modules) - before))"
    assert {name.split(".")[0] for name in run("-c", fresh).split()} - light == set()


def test_asking_for_the_version_does_not_import_torch() -> None:
    program = """
import sys
from widemargin.cli import main
sys.argv = ["widemargin", "--version"]
try:
    main()
finally:
    print("torch" in sys.modules)
"""
    assert run("-c", program).split()[-1] == "False"


def test_version_is_the_same_everywhere() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert widemargin.__version__ == declared
    assert declared in run("-m", "widemargin", "--version").split()
    assert re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [declared]
    assert f"## [{declared}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_public_names_are_few_sorted_and_resolve() -> None:
    assert len(widemargin.__all__) <= 30
    assert widemargin.__all__ == sorted(widemargin.__all__)
    assert dir(widemargin) == widemargin.__all__
    for name in widemargin.__all__:
        assert getattr(widemargin, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = widemargin.nothing


def violations(graph: Graph) -> list[str]:
    """One sentence for each import, package or cycle that the order does not allow."""
    found = [
        f"{part} has no layer: add it to LAYERS or BESIDE, and to docs/project/design.md"
        for part in sorted({package_of(module) for module in graph} - LAYER.keys() - BESIDE.keys())
    ]
    edges: dict[str, set[str]] = {}
    for module, names in sorted(graph.items()):
        for name in sorted(names):
            part, other = package_of(module), package_of(name)
            if name.split(".")[0] != "widemargin":
                continue
            if unit(module) != unit(name):
                edges.setdefault(unit(module), set()).add(unit(name))
            if part == other:
                continue
            if part in LAYER | BESIDE and other in LAYER | BESIDE and not allowed(part, other):
                found.append(f"{part} imports {other} ({module} imports {name})")
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as cycle:
        if not found:
            found.append(f"the packages import each other in a cycle: {' <- '.join(cycle.args[1])}")
    return found


def unit(module: str) -> str:
    """What may be part of no cycle: a package, or in the first layer a module."""
    part = package_of(module)
    return module if LAYER.get(part) == 0 else part


def allowed(part: str, other: str) -> bool:
    if other == "__init__":  # its lazy names hide what is imported
        return False
    if part in BESIDE:
        return other in BESIDE[part][0]
    if other in BESIDE:
        return LAYER[part] >= LAYER[BESIDE[other][1]]
    return LAYER[part] >= LAYER[other]


def imports_of(source: Path) -> Graph:
    """What each module below `source` imports, anywhere in it but under `if TYPE_CHECKING`."""
    paths = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    return {module: set(imported(path, module, paths.keys())) for module, path in paths.items()}


def imported(path: Path, module: str, known: Collection[str]) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes_that_run(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            home = (above + (node.module or "")).rstrip(".")
            for alias in node.names:
                is_module = f"{home}.{alias.name}" in known
                if is_module or home != "widemargin" or not alias.name.startswith("__"):
                    yield f"{home}.{alias.name}" if is_module else home
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def nodes_that_run(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = iter(node.orelse)
    for child in children:
        yield from nodes_that_run(child)


def reach(graph: Graph, module: str) -> set[str]:
    """Every module that importing `module`, and calling everything in it, may import."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, set())
            if "." in name:
                waiting.append(name.rpartition(".")[0])
    return seen


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def package(folder: Path, files: dict[str, str]) -> Path:
    source = folder / "widemargin"
    empty = ("__init__.py", "types.py", "norms.py", "places.py", "cli.py", "margins/__init__.py", "data/__init__.py")
    for name, text in {**dict.fromkeys(empty, ""), "control.py": "", **files}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    return source


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
