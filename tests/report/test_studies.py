"""The scoreboard and the pages of studies."""

from __future__ import annotations

import base64
import copy
import html
import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from report.test_page import HOSTILE, Read
from widemargin.report import holds, studies, study_charts
from widemargin.report.figures import svg
from widemargin.report.layers import HEIGHT

FIGURE: dict[str, Any] = {
    "x": "flips",
    "y": "accuracy",
    "title": "Accuracy over flips",
    "kind": "lines",
    "x_title": "",
    "y_title": "",
    "where": {},
    "arms": None,
    "split": None,
    "percent": True,
    "log_x": False,
    "log_y": False,
}
ROWS = [
    {"arm": arm, "seed": seed, "flips": flips, "accuracy": 0.9 - 0.2 * flips + 0.02 * seed + 0.1 * (arm == "ours")}
    for arm in ("plain", "ours")
    for seed in (0, 1)
    for flips in (0.0, 0.8)
]
POINTS = [{"arm": "plain", "seed": 0, "flips": 0.0, "curve": "fgsm", "epsilon": e, "accuracy": 0.5} for e in (0.1, 0.2)]
CLAIM: dict[str, Any] = {
    "text": "ours minus plain",
    "kind": "points",
    "reported": -2.5,
    "tolerance": 1.0,
    "measured": 10.0,
    "sd": 0.5,
    "se": 0.35,
    "seeds": 2,
    "verdict": "contradicted",
    "word": "contradicted",
    "why": "the sign differs",
    "quote": "Ours is better by 2.5%.",
    "unit": "points",
    "dead": {"plain": [1, 4]},
}
GOOD = {"verdict": "reproduced at budget", "word": "reproduced"}
SEARCHED = [
    {"at": "plain at flips 0.0", "cell": {"optimizer.lr": lr}, "validation": 0.5, "died": died, "seeds": 3}
    for lr, died in ((0.1, 0), (0.3, 2))
]
RESULT: dict[str, Any] = {
    "study": "E3",
    "source": "elsayed, Fig. 2",
    "title": "Flips",
    "question": "Does it help?",
    "scale": "budget",
    "complete": True,
    "verdict": "contradicted, partly run",
    "word": "contradicted",
    "weakest": "contradicted",
    "share": {"of": 3, "ran": 2, "hold": 1},
    "dead": {"plain": [1, 4]},
    "dead trials": [{"arm": "plain", "seed": 1, "flips": 0.8}],
    "old verdict": {"verdict": "not reproduced"},
    "counts": {"contradicted": 1, "reproduced at budget": 1},
    "claims": [
        CLAIM,
        {**CLAIM, "reported": None, "tolerance": None, "sd": None} | GOOD,
        {**CLAIM, "ours": True} | GOOD,
    ],
    "paper": [{"arm": "plain", "flips": 0.8, "accuracy": 0.7}, {"arm": "ours", "flips": 0.4, "accuracy": 0.8}],
    "seeds": [0, 1],
    "search": {"cells": 2, "by": "validation", "table": SEARCHED},
    "chosen": {"plain at flips 0.0": {"optimizer.lr": 0.1}, "ours at flips 0.0": {}},
    "arms": [{"name": "plain", "ours": False}, {"name": "ours", "ours": True}],
    "figures": [FIGURE],
    "deviations": ["Fewer steps."],
    "scale note": "a tenth of the steps",
    "trials": 8,
    "trial minutes": 1.5,
    "origins": [{"commit": "abc", "hardware": {"gpu": "A GPU"}}, {"commit": "abc", "hardware": {"cpus": 2}}],
    "command": "widemargin study run E3 --scale budget",
    "rows": [*ROWS, *POINTS],
}
NOT_RUN = {k: RESULT[k] for k in ("source", "question", "command")} | {
    "study": "E4",
    "title": "Few samples",
    "scale": None,
    "verdict": "not run",
    "word": "not run",
    "share": {"of": 1, "ran": 0, "hold": 0},
    "claims": [{**CLAIM, "measured": None, "sd": None, "verdict": "not run", "word": "not run"}],
}


def test_a_figure_shows_means_and_deviations_of_the_plain_rows() -> None:
    found = study_charts.points(RESULT, FIGURE)
    assert [(point["arm"], point["x"], point["seeds"]) for point in found] == [
        ("plain", 0.0, 2),
        ("plain", 0.8, 1),  # the other one died
        ("ours", 0.0, 2),
        ("ours", 0.8, 2),
        ("ours", 0.4, 0),  # the paper's alone
    ]
    assert [(point["dead"], point["paper"]) for point in found] == [(0, None), (1, 0.7), (0, None), (0, None), (0, 0.8)]
    assert found[1]["mean"] == pytest.approx(0.74)
    assert found[1]["mean of all"] == pytest.approx(0.75)
    assert found[0]["mean"] == pytest.approx(0.91)
    assert found[0]["high"] - found[0]["mean"] == pytest.approx(0.02 / 2**0.5, abs=1e-4)


def test_points_of_a_curve_are_drawn_where_the_figure_names_it() -> None:
    found = study_charts.points(RESULT, {**FIGURE, "x": "epsilon", "where": {"curve": "fgsm", "epsilon": [0.1, 0.3]}})
    assert [(point["arm"], point["x"], point["mean"]) for point in found] == [("plain", 0.1, 0.5)]
    every = study_charts.points(RESULT, {**FIGURE, "kind": "scatter"})
    assert len(every) == len(ROWS)
    split = study_charts.points(RESULT, {**FIGURE, "split": "seed", "arms": ["ours"]})
    assert {(point["arm"], point["split"]) for point in split} == {("ours", "0"), ("ours", "1")}


@pytest.mark.parametrize(
    "changes",
    [
        {"log_y": True},
        {"kind": "bars"},
        {"kind": "bars", "x": "arm"},
        {"kind": "scatter", "x": "accuracy", "y": "seed", "percent": False},
        {"split": "seed"},
        {"split": "seed", "kind": "scatter"},
        {"x": "epsilon", "where": {"curve": "fgsm"}, "log_x": True},
    ],
)
def test_every_kind_can_be_drawn(changes: dict[str, Any]) -> None:
    text = studies.page({**RESULT, "figures": [{**FIGURE, **changes}]})
    images = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", text)
    assert len(images) == 2
    drawn = [base64.b64decode(image).decode() for image in images]
    assert drawn[0] != drawn[1]  # for dark and light
    assert all("<path" in svg and "plain" in svg for svg in drawn)


def test_a_logarithmic_axis_is_linear_around_0_where_there_are_values_below_it() -> None:
    figure = {**FIGURE, "log_y": True, "percent": False}
    rows: list[dict[str, Any]] = [{**row, "accuracy": (float(row["accuracy"]) - 0.8) * 1e20} for row in ROWS]

    def axis(given: dict[str, Any]) -> Any:
        return study_charts.chart(given, figure).to_dict()["layer"][0]["encoding"]["y"]

    assert axis(RESULT)["scale"]["type"] == "log"
    of_both_signs = axis({**RESULT, "rows": rows})
    assert of_both_signs["scale"]["type"] == "symlog"
    ticks = of_both_signs["axis"]["values"]
    assert ticks == sorted(ticks)
    assert ticks[4] == 0
    assert all(1e4 <= big / small <= 1e6 for small, big in itertools.pairwise(ticks[5:]))
    drawn = [point for point in study_charts.points({**RESULT, "rows": rows}, figure) if point["mean"] is not None]
    assert all(point["low"] * point["mean"] > 0 for point in drawn)  # no bar reaches across 0


def test_logarithmic_axes_have_decades_where_there_are_several() -> None:
    def axes(values: list[float], accuracies: list[float]) -> list[Any]:
        rows = [{"arm": "plain", "seed": 0, "flips": x, "accuracy": y} for x, y in zip(values, accuracies, strict=True)]
        figure = {**FIGURE, "log_x": True, "log_y": True, "percent": False}
        spec = study_charts.chart({**RESULT, "rows": rows, "paper": [], "dead trials": []}, figure).to_dict()
        return [spec["layer"][0]["encoding"][axis]["axis"].get("values") for axis in "xy"]

    assert axes([0.002, 0.5, 20.0], [0.108, 1.0, 3.998]) == [[0.01, 0.1, 1.0, 10.0], [0.1, 1.0, 10.0]]
    assert axes([256.0, 512.0, 768.0], [0.2, 0.3, 0.4]) == [None, None]  # one decade or none: Vega's own ticks


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_where_all_seeds_died_a_cross_stands_at_the_bottom_edge(kind: str) -> None:
    dead = [{"arm": arm, "seed": seed, "flips": 0.8} for arm in ("plain", "ours") for seed in (0, 1)]
    figure = {**FIGURE, "kind": kind}
    result = {**RESULT, "figures": [figure], "dead trials": dead}
    drawn = ElementTree.fromstring(svg(study_charts.chart(result, figure), "light"))
    crosses = [text for text in drawn.iter() if text.tag.endswith("text") and text.text == "✕2"]
    places = [[float(n) for n in re.findall(r"[-.0-9]+", text.get("transform", ""))[:2]] for text in crosses]
    assert len(places) == 2
    assert abs(places[0][0] - places[1][0]) > 20  # beside each other
    assert all(0 <= HEIGHT + 60 - y < 12 for _, y in places)
    said = "at the bottom edge where all seeds did"
    assert said in studies.page(result)
    assert said not in studies.page(RESULT)


def test_labels_of_numbers_stand_below_their_ticks() -> None:
    drawn = ElementTree.fromstring(svg(study_charts.chart(RESULT, FIGURE), "light"))
    labels = {text.text: text.get("text-anchor") for text in drawn.iter() if text.tag.endswith("text")}
    assert labels["0.0"] == labels["0.8"] == labels["0.4"] == "middle"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_bar_ends_above_0_only_where_the_axis_is_logarithmic(sign: float) -> None:
    """Means 500 or −500, and 5; the standard deviation is 10."""
    rows = [
        {"arm": "plain", "seed": seed, "flips": x, "accuracy": mean + 10.0 * (seed - 1)}
        for x, mean in ((0.0, 500.0 * sign), (0.8, 5.0))
        for seed in range(3)
    ]
    given = {**RESULT, "rows": rows, "paper": [], "dead trials": []}
    points = study_charts.points(given, {**FIGURE, "log_y": True, "percent": False})
    assert [(point["low"], point["high"]) for point in points] == [
        (500.0 * sign - 10.0, 500.0 * sign + 10.0),
        (5.0 if sign > 0 else -5.0, 15.0),
    ]


def test_a_figure_without_rows_is_left_out() -> None:
    missing = {**FIGURE, "title": "Not measured", "where": {"curve": "ifgsm"}}
    assert "Not measured" not in studies.page({**RESULT, "figures": [FIGURE, missing]})


def test_a_cloud_of_one_arm_has_the_colours_of_its_parts() -> None:
    def encoding(arms: list[str] | None) -> Any:
        figure = {**FIGURE, "kind": "scatter", "split": "flips", "x": "accuracy", "y": "seed", "arms": arms}
        return study_charts.chart(RESULT, figure).to_dict()["layer"][0]["encoding"]

    assert encoding(["ours"])["color"]["field"] == encoding(["ours"])["shape"]["field"] == "split"
    assert (encoding(None)["color"]["field"], encoding(None)["shape"]["field"]) == ("arm", "split")
    assert encoding(None)["shape"]["scale"]["domain"] == ["0.0", "0.8"]


@pytest.mark.parametrize("kind", ["lines", "scatter"])
def test_legends_stand_below_each_other_in_the_colours_of_the_page(kind: str) -> None:
    figure = {**FIGURE, "kind": kind, "split": "seed"}
    drawn = ElementTree.fromstring(svg(study_charts.chart(RESULT, figure), "dark"))
    marks = [mark for mark in drawn.iter() if mark.tag.endswith("path")]
    assert marks
    assert {mark.get(color) for mark in marks for color in ("fill", "stroke")}.isdisjoint({"black", "#000", "#000000"})
    legends = [group for group in drawn.iter() if "role-legend" in group.get("class", "").split()]
    starts = [re.findall(r"[-.0-9]+", group[0].get("transform", "")) for group in legends]
    assert [len({place[axis] for place in starts}) for axis in (0, 1)] == [1, 2]  # one column, two rows


def test_numbers_and_words_share_an_axis_as_words() -> None:
    rows = [{"arm": "plain", "seed": 0, "p": p, "error": 1.0} for p in (1.0, 1.25, "inf")]
    spec = study_charts.chart({**RESULT, "rows": rows}, {**FIGURE, "x": "p", "y": "error"}).to_dict()
    encoding = spec["layer"][0]["encoding"]["x"]
    assert (encoding["type"], encoding["sort"]) == ("nominal", ["1", "1.25", "inf"])


SEARCH = "not optimizer.lr 0.3 (validation 0.5, 2 of 3 seeds died)"
SAID = (
    "Under the first rules: not reproduced",
    "Ours is better by 2.5%.",
    "our comparison",
    SEARCH,
    "Diamonds are the paper",
)


def test_the_pages_say_what_is_known(tmp_path: Path) -> None:
    written = studies.write(tmp_path, [RESULT, NOT_RUN])
    assert [path.name for path in written] == ["index.html", "holds.html", "E3.html", "scoreboard.svg"]
    board, page = (written[i].read_text() for i in (0, 2))
    for said in (
        "−2.5",
        "10 (two seeds)",
        "± is half of the 95",
        "1 of 2 claims hold",
        "1 of 4 seeds of plain died",
        "1 contradicted, 1 not run",
        "A GPU; 2 CPU cores",
        "E4 Few samples",
        'href="E3.html"',
        "not run",
    ):
        assert said in board
    assert 'href="E4.html"' not in board
    for said in (
        RESULT["command"],
        "Fewer steps.",
        "a tenth of the steps",
        "the sign differs",
        "optimizer.lr 0.1",
        *SAID,
    ):
        assert said in page
    assert "1 reproduced at budget" in board
    assert studies.counts([RESULT, NOT_RUN, NOT_RUN]) == {"contradicted": 1, "not run": 2}


def test_a_claim_has_one_interval_on_all_pages() -> None:
    claim = {**CLAIM, "text": "margin above cross-entropy on test data", "seeds": 4, "sd": 3.0, "se": 1.5}
    half = float(stats.t.ppf(0.975, df=3)) * 1.5
    said = f"10.0 ± {half:.1f}"
    assert studies.ours(claim) == said == "10.0 ± 4.8"
    result = {**RESULT, "study": "E1", "claims": [claim]}
    for text in (studies.scoreboard([result]), studies.page(result), holds.page([result])):
        assert said in text.replace("\u00a0", " ")
    assert studies.ours({**claim, "se": 0.0, "sd": 0.0}) == "10 ± 0"
    assert studies.ours({**claim, "se": None, "sd": None}) == "10.0 (one seed)"


def test_words_of_others_are_text_and_nothing_is_loaded(tmp_path: Path) -> None:
    bad = copy.deepcopy(RESULT)
    for key in ("title", "question", "source", "scale note", "command"):
        bad[key] = HOSTILE[0]
    bad["claims"][0]["text"] = bad["claims"][0]["why"] = HOSTILE[2]
    bad["arms"][0]["name"] = HOSTILE[1]
    bad = json.loads(json.dumps(bad).replace('"plain"', json.dumps(HOSTILE[1])))
    bad["deviations"] = list(HOSTILE)
    studies.write(tmp_path, [bad])
    for name in ("index.html", "holds.html", "E3.html"):
        read = Read((tmp_path / name).read_text())
        assert read.all("script") == []
        assert {image["src"][:19] for image in read.all("img") if image["src"]} <= {"data:image/svg+xml;"}
        assert all(
            (link.get("href") or "").startswith(("#", "E3.html", "index.html", "holds.html")) for link in read.all("a")
        )
        assert "default-src 'none'" in str(read.all("meta")[1]["content"])


def test_a_result_that_lacks_something_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"results\[0\] has no 'claims'"):
        studies.write(tmp_path, [{k: v for k, v in RESULT.items() if k != "claims"}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/abs", "index", "E3.html/../x", ""])
def test_no_result_names_a_file_of_its_own(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"results\[0\].study"):
        studies.write(tmp_path / "pages" / "of", [{**RESULT, "study": name}])
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("odd", ["\u2028", "\x00", "\ud800", "\x1b", "\uffff"])
def test_characters_that_no_drawing_can_hold_are_replaced(odd: str, tmp_path: Path) -> None:
    bad = json.loads(json.dumps(RESULT).replace('"plain"', json.dumps(f"pl{odd}ain")))
    bad["figures"][0]["x_title"] = bad["claims"][0]["text"] = bad["verdict"] = f"fl{odd}ips"
    studies.write(tmp_path, [bad])
    (image, _) = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", (tmp_path / "E3.html").read_text())
    drawn = ElementTree.fromstring(base64.b64decode(image))
    assert any("pl\ufffdain" in (text.text or "") for text in drawn.iter())


def test_the_readme_has_the_scoreboard_of_the_stored_results_and_what_holds_is_two_screens() -> None:
    from widemargin.cli.study import results_in

    root = Path(__file__).parents[2]
    found = [result for result in results_in(root / "results") if result["study"][0] in "EOSF"]
    words, claims = studies.counts(found), studies.claim_counts(found)
    budget = sum(result["verdict"].startswith("reproduced at") for result in found)
    text = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"{words['reproduced']} are reproduced ({budget} of them at budget scale), {words['direction holds']} hold in "
        f"direction, {words['contradicted']} is contradicted, {words['inconclusive']} are inconclusive and "
        f"{words['not run']} have not run. Of the {sum(claims.values()) - claims['not run']} claims that ran, "
        f"{claims['reproduced']} are reproduced, {claims['direction holds']} hold in direction, "
        f"{claims['contradicted']} are contradicted and {claims['inconclusive']} are open"
    ) in text.replace("are contradicted, ", "is contradicted, ")
    # Two screens of 1280 × 800 pixels are about 60 lines of 115 letters. Verdicts in words are for screen readers.
    seen = re.sub(r'<span class="unseen">.*?</span>', "", holds.page(found))
    lines = [html.unescape(re.sub(r"<[^>]*>", "", item)) for item in re.findall(r"<li.*?</li>", seen)]
    assert 20 < sum(math.ceil(len(line) / 115) for line in lines) <= 60


def test_our_own_studies_are_a_table_apart_with_goals(tmp_path: Path) -> None:
    claim = {**CLAIM, "verdict": "reproduced at budget", "word": "reproduced", "side": "at least"}
    own = {**RESULT, "study": "W1", "source": "widemargin, few samples", "verdict": "contradicted", "claims": [claim]}
    written = studies.write(tmp_path, [RESULT], [own])
    assert {path.name for path in written} == {"index.html", "holds.html", "E3.html", "W1.html", "scoreboard.svg"}
    index, page = ((tmp_path / name).read_text() for name in ("index.html", "W1.html"))
    assert "Our own studies" in index
    assert ">1 of 1 goals met</span>" in index
    assert "1 results of four papers" in index
    assert ">goal met</span>" in page
    assert ">goal</th>" in page
    assert ">tolerance</th>" not in page
    assert ">tolerance</th>" in (tmp_path / "E3.html").read_text()
    assert "Our own studies" not in studies.scoreboard([RESULT])
