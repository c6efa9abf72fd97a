from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from report.synthetic import result
from widemargin.report.check import check

FULL = json.loads(json.dumps(result()))


def changed(path: tuple[str | int, ...], value: Any) -> Any:
    copied: Any = copy.deepcopy(FULL)
    at = copied
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copied


def test_a_whole_result_passes_and_so_does_the_least_one() -> None:
    assert check(FULL) is FULL
    check({"title": "t", "arms": [{"name": "a"}]})


def test_a_density_passes() -> None:
    grid = {"grid": [0.0, 1.0], "density": [1.0, 0.0], "count": 3, "mean": 0.2, "std": 0.1, "share_negative": 0.0}
    check(changed(("arms", 0, "margins", "input"), grid))


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (7, "result is 7"),
        ({"arms": []}, "result has no 'title'"),
        ({"title": "t", "arms": []}, "result.arms is empty"),
        (changed(("title",), 3), "result.title is 3"),
        (changed(("arms", 1, "accuracy"), 93.0), r"result.arms\[1\].accuracy is 93.0"),
        (changed(("arms", 1, "accuracy"), True), r"accuracy is True"),
        (changed(("arms", 1, "accuracy"), float("nan")), r"accuracy is nan"),
        (changed(("arms", 0, "label"), "hinge"), r"arms\[1\].label is 'hinge' a second time"),
        (changed(("arms", 2, "name"), "arm-0"), r"arms\[2\].name is 'arm-0' a second time"),
        (changed(("arms", 0, "colour"), "red"), r"arms\[0\] has the unknown key 'colour'"),
        (changed(("arms", 0, "curve", 2), {"epsilon": 0.1}), r"curve\[2\] has no 'accuracy'"),
        (changed(("arms", 0, "curve", 2, "epsilon"), -1), r"curve\[2\].epsilon is -1"),
        (changed(("arms", 0, "margins", "input", 5), "x"), r"margins.input\[5\] is 'x'"),
        (changed(("arms", 0, "margins"), [1.0]), r"margins is \[1.0\]"),
        (changed(("arms", 0, "sizes", 0, "samples"), 2.5), r"samples is 2.5"),
        (changed(("arms", 0, "hardest", 0, "label"), None), r"hardest\[0\].label is None"),
        (
            changed(("arms", 0, "hardest", 0, "image"), "https://x.org/a.png"),
            r"hardest\[0\].image is a string",
        ),
        (
            changed(("arms", 0, "hardest", 0, "image"), 'data:image/png;base64,A"onerror='),
            "image is a string",
        ),
        (changed(("arms", 0, "history", 0, "epoch"), None), r"history\[0\].epoch is None"),
        (
            changed(("arms", 0, "history", 0), {"epoch": 1}),
            r"history\[0\] has no 'split'",
        ),
        (changed(("arms", 0, "history", 0, "split"), "test"), r"split is 'test'"),
        (
            changed(("arms", 0, "history", 0, "accuracy"), 2),
            r"history\[0\].accuracy is 2",
        ),
        (changed(("attack", "shown"), 0.1), "attack.shown is 0.1"),
    ],
)
def test_what_is_no_result_is_refused_in_a_sentence(bad: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check(bad)


def test_the_lengths_of_a_density_must_agree() -> None:
    grid = {"grid": [0.0, 1.0], "density": [1.0], "count": 3, "mean": 0.2, "std": 0.1, "share_negative": 0.0}
    with pytest.raises(ValueError, match=r"density has length 1"):
        check(changed(("arms", 0, "margins", "input"), grid))
