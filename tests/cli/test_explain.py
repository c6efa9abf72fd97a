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


def test_features_have_the_names_of_their_columns(run: Run) -> None:
    rows = [f"{i % 3},{i % 5},{i % 7},{'abc'[i % 3]}" for i in range(30)]
    Path("own.csv").write_text("\n".join(["<b>u</b>,petal & width,w,kind", *rows]))
    options = ("--model", "toy-mlp", "--data", "own.csv", "--label", "kind", "--index", "4", "--device", "cpu")
    answer = run("explain", *options)
    assert answer.code == 0, answer.err
    page = Path("runs/explain/page.html").read_text(encoding="utf-8")
    assert '<th scope="row">&lt;b&gt;u&lt;/b&gt;</th>' in page
    assert '<th scope="row">petal &amp; width</th>' in page
    assert "<b>u" not in page


def test_the_page_says_which_samples_and_of_which_network(run: Run) -> None:
    answer = run("explain", "--model", "toy-mlp", "--data", "toy", "--index", "30", "--index", "7", "--device", "cpu")
    assert answer.code == 0, answer.err
    page = Path("runs/explain/page.html").read_text(encoding="utf-8")
    assert page.index(">Sample 30<") < page.index(">Sample 7<")
    for name, value in (("model", "toy-mlp"), ("data", "toy"), ("split", "test"), ("samples", "30, 7")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page


def test_a_sample_that_is_not_there_gets_a_sentence(run: Run) -> None:
    answer = run("explain", "--model", "toy-mlp", "--data", "toy", "--index", "100000")
    assert answer.code != 0
    assert "--index is 100000" in answer.err
