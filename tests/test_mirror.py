"""Structure of the source tree: mirrored tests, class names, module docstrings, and lengths of functions and files."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "widemargin"

MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 60
QUESTIONS = ("What ", "Which ", "Where ", "When ", "Why ", "How ")

# Source files (or folders of declarations) without a test file of their own, and the test file that covers them.
COVERED_ELSEWHERE: dict[str, str] = {
    "__init__.py": "test_imports.py",
    "_autograd/needed_grads.py": "_autograd/test_double_backward.py",
    "_autograd/preserve_rng.py": "margins/test_estimation.py",
    "_cuda/__init__.py": "_cuda/test_norm_kernels.py",
    "bounds/covering.py": "bounds/test_input_margin.py",
    "bounds/cushions.py": "bounds/test_odn.py",
    "bounds/result.py": "bounds/test_input_margin.py",
    "cli/__init__.py": "cli/test_app.py",
    "cli/errors.py": "cli/test_app.py",
    "cli/five_losses.py": "cli/test_demo.py",
    "cli/options.py": "cli/test_app.py",
    "cli/paper_pictures.py": "cli/test_picture.py",
    "cli/plane_pictures.py": "cli/test_picture.py",
    "cli/report.py": "cli/test_study.py",
    "control/accuracy.py": "control/test_twins.py",
    "diagnostics/explanation_page.py": "diagnostics/test_explanation.py",
    "diagnostics/label_page.py": "diagnostics/test_label_issues.py",
    "data/opening.py": "data/test_batching.py",
    "geometry/cells.py": "geometry/test_slices.py",
    "geometry/polygons.py": "geometry/test_slices.py",
    "integrations/__init__.py": "test_imports.py",
    "integrations/batches.py": "integrations/test_torchmetrics.py",
    "layers/activation.py": "geometry/test_network.py",
    "layers/attention.py": "_autograd/test_forward_mode.py",
    "layers/convolution.py": "layers/test_forms.py",
    "layers/linear.py": "layers/test_forms.py",
    "layers/normalization.py": "layers/test_forms.py",
    "layers/pooling.py": "layers/test_forms.py",
    "layers/structure.py": "layers/test_forms.py",
    "optim/base.py": "optim/test_nero.py",
    "optim/fused.py": "optim/test_nero.py",
    "population/batches.py": "population/test_fit.py",
    "population/optimizers.py": "population/test_fit.py",
    "population/stack.py": "population/test_fit.py",
    "report/alt.py": "report/test_figures.py",
    "report/html.py": "report/test_page.py",
    "report/layers.py": "report/test_figures.py",
    "report/names.py": "report/test_tables.py",
    "report/picture.py": "report/test_planes.py",
    "report/schema.py": "report/test_check.py",
    "report/sections.py": "report/test_page.py",
    "report/study_charts.py": "report/test_studies.py",
    "split_backward/protocol.py": "split_backward/test_backward.py",
    "split_backward/sample_layouts.py": "split_backward/test_backward.py",
    "studies/claims.py": "studies/test_catalog.py",
    "studies/distance_watch.py": "studies/tasks/test_augmented.py",
    "studies/elsayed/": "studies/test_catalog.py",
    "studies/farhang/": "studies/test_catalog.py",
    "studies/networks.py": "studies/tasks/test_classify.py",
    "studies/odn/": "studies/test_catalog.py",
    "studies/result.py": "studies/test_run.py",
    "studies/rows.py": "studies/test_effects.py",
    "studies/samples.py": "studies/test_expand.py",
    "studies/sokolic/": "studies/test_catalog.py",
    "studies/widemargin/": "studies/test_catalog.py",
    "studies/tasks/__init__.py": "studies/test_run.py",
    "studies/tasks/ensembles.py": "studies/tasks/test_targeted.py",
    "studies/tasks/nngp.py": "studies/tasks/test_targeted.py",
    "studies/tasks/twins.py": "studies/tasks/test_targeted.py",
    "types.py": "test_checks.py",
}

FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
TREES = {name: ast.parse((SOURCE / name).read_text(encoding="utf-8")) for name in FILES}


def test_every_source_file_has_a_test_file() -> None:
    assert [name for name in unmirrored() if not {name, folder(name)} & COVERED_ELSEWHERE.keys()] == []


def test_no_entry_of_the_table_is_stale() -> None:
    needed = {key for name in unmirrored() for key in (name, folder(name))}
    assert set(COVERED_ELSEWHERE) - needed == set()
    assert [test for test in COVERED_ELSEWHERE.values() if not (TESTS / test).is_file()] == []


def test_no_class_name_is_used_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_the_first_line_of_a_module_is_a_noun_phrase() -> None:
    first = {name: (ast.get_docstring(tree) or "").partition("\n")[0] for name, tree in TREES.items()}
    asks = {name: line for name, line in first.items() if line.startswith(QUESTIONS) or not line or line[-1] == "?"}
    assert asks == {}


def test_functions_and_files_are_short() -> None:
    long: dict[str, int] = {}
    for name, tree in TREES.items():
        lines = (SOURCE / name).read_text(encoding="utf-8").splitlines()
        if len(lines) > MOST_FILE_LINES:
            long[name] = len(lines)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                count = code_lines(node, lines)
                if count > MOST_FUNCTION_LINES:
                    long[f"{name}: {node.name}"] = count
    assert long == {}


def unmirrored() -> list[str]:
    """Source files that define functions or classes and have no test file of their own name."""
    defines = [n for n, tree in TREES.items() if any(isinstance(d, (ast.FunctionDef, ast.ClassDef)) for d in tree.body)]
    return [name for name in defines if not mirror(name).is_file()]


def mirror(name: str) -> Path:
    """The test file of a source file: `a/b.py` → `tests/a/test_b.py`."""
    return TESTS / Path(name).with_name(f"test_{Path(name).name}")


def folder(name: str) -> str:
    return f"{name.rpartition('/')[0]}/"


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of a function without its docstring, blank lines and comments.

    The signature of a command, which declares its options, does not count.
    """
    first, end = function.body[0], function.end_lineno
    assert first.end_lineno is not None
    body = first.end_lineno if ast.get_docstring(function, clean=False) is not None else first.lineno - 1
    declares = any("Annotated" in ast.unparse(a.annotation) for a in function.args.args if a.annotation)
    signature = [] if declares else lines[function.lineno - 1 : first.lineno - 1]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in signature + lines[body:end])
