"""Results of studies at the door: what the pages show has the types that they expect."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from report.test_studies import NOT_RUN, RESULT
from widemargin.report.study_schema import check_study

RESULTS = Path(__file__).parents[2] / "results"


def test_all_results_of_this_repository_fit() -> None:
    paths = sorted(RESULTS.glob("[A-Z]*.json"))
    assert len(paths) > 30
    for path in paths:
        check_study(json.loads(path.read_text(encoding="utf-8")), path.name)
    check_study(RESULT, "result")
    check_study(NOT_RUN, "result")


def changed(path: tuple[str | int, ...], value: Any) -> Any:
    copied: Any = copy.deepcopy(RESULT)
    at = copied
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ([], r"E3.json is \[\]"),
        (changed(("study",), "../../escaped"), "E3.json.study is a string, expected the name of a study"),
        (changed(("study",), "/abs/x"), "E3.json.study is a string"),
        (changed(("study",), "index"), "E3.json.study is a string"),
        (changed(("study",), 3), "E3.json.study is 3"),
        (changed(("scale",), "huge"), "E3.json.scale is 'huge'"),
        (changed(("claims",), None), "E3.json.claims is None"),
        (changed(("claims", 0, "measured"), "10"), r"E3.json.claims\[0\].measured is '10'"),
        (changed(("claims", 0, "measured"), 1e300), r"E3.json.claims\[0\].measured is 1e\+300"),
        (changed(("claims", 1, "verdict"), None), r"E3.json.claims\[1\].verdict is None"),
        (changed(("figures", 0, "kind"), "pie"), r"E3.json.figures\[0\].kind is 'pie'"),
        (changed(("figures", 0, "where"), []), r"E3.json.figures\[0\].where is \[\]"),
        (changed(("arms", 0), "plain"), r"E3.json.arms\[0\] is 'plain'"),
        (changed(("rows", 0), 1), r"E3.json.rows\[0\] is 1"),
        (changed(("rows", 0, "arm"), 1), r"E3.json.rows\[0\].arm is 1"),
        (changed(("rows", 0, "accuracy"), [0.5]), r"E3.json.rows\[0\].accuracy is \[0.5\]"),
        (changed(("rows", 0, "accuracy"), 10**400), r"E3.json.rows\[0\].accuracy is"),
        (changed(("origins", 0, "hardware"), "A GPU"), r"E3.json.origins\[0\].hardware is 'A GPU'"),
        (changed(("search",), {}), "E3.json.search has no 'cells'"),
        (changed(("chosen", "x"), 1), "E3.json.chosen.x is 1"),
        (changed(("trial minutes",), "1"), "E3.json.trial minutes is '1'"),
        (changed(("paper", 0), {"noise": 0}), r"E3.json.paper\[0\] has no 'arm'"),
        ({key: value for key, value in RESULT.items() if key != "deviations"}, "E3.json has no 'deviations'"),
    ],
)
def test_what_does_not_fit_is_a_sentence_with_the_field(bad: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        check_study(bad, "E3.json")
