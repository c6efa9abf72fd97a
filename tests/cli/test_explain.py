"""`widemargin explain`, from the command line to its page."""

from __future__ import annotations

from pathlib import Path

from cli.conftest import Run


def test_samples_are_explained_on_a_page(run: Run) -> None:
    answer = run("explain", "--model", "toy-mlp", "--data", "toy", "--index", "3", "--index", "0", "--device", "cpu")
    assert answer.code == 0, answer.err
    assert answer.out.index("sample 3: The network answers") < answer.out.index("sample 0: The network answers")
    page = Path("runs/explain/page.html").read_text(encoding="utf-8")
    assert "toy-mlp on toy: decisions explained" in page
    assert page.count('class="decision"') == 2


def test_a_sample_that_is_not_there_gets_a_sentence(run: Run) -> None:
    answer = run("explain", "--model", "toy-mlp", "--data", "toy", "--index", "100000")
    assert answer.code != 0
    assert "--index is 100000" in answer.err
