"""`widemargin study`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cli.conftest import Run
from data.test_imagenet import write_images
from studies import tiny
from studies.tiny import Counting
from widemargin.studies import catalog, tasks


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """E3 is a small study whose task remembers what it ran."""
    task, find = Counting(), tasks.find
    monkeypatch.setattr(tasks, "find", lambda name: task if name == "counting" else find(name))
    monkeypatch.setattr(catalog, "study", lambda id: tiny.study())
    monkeypatch.setattr(catalog, "declared", lambda: [tiny.study()])
    monkeypatch.setattr(catalog, "own", list)
    return task


def test_the_list_has_every_result_of_the_papers(run: Run) -> None:
    answer = run("study", "list")
    assert answer.code == 0, answer.err
    for name in (*catalog.MODULES, *catalog.OWN):
        assert any(line.startswith(f" {name} ") for line in answer.out.splitlines())
    assert "Flipped training labels" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_one_is_shown(run: Run) -> None:
    answer = run("study", "show", "E3")
    assert answer.code == 0, answer.err
    for said in ("elsayed, Fig. 2 and 12", "96.4 points", "order", "margin l_2", "budget", "Not as the paper:"):
        assert said in answer.out
    assert max(map(len, answer.out.splitlines()[3:40])) <= 80


def test_one_of_our_own_is_shown_with_goals(run: Run) -> None:
    answer = run("study", "show", "W1")
    assert answer.code == 0, answer.err
    for said in ("goal", "≥ 3 points", "≥ −0.5 points", "Note:"):
        assert said in answer.out
    for said in ("reported", "tolerance", "Not as the paper"):
        assert said not in answer.out


def test_comparisons_of_ours_are_not_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny.study()
    extra = dataclasses.replace(study.claims[0], ours=True)
    monkeypatch.setattr(catalog, "declared", lambda: [dataclasses.replace(study, claims=(*study.claims, extra))])
    Path("results").mkdir()
    assert f"Claims: {len(study.claims)} not run" in run("study", "verdicts").out


def test_a_run_prints_claims_and_writes_the_result(run: Run, counting: Counting) -> None:
    before = run("study", "run", "E3", "--scale", "budget", "--dry-run")
    assert (before.code, counting.ran) == (0, [])
    assert "declared" in before.out
    answer = run("study", "run", "E3", "--scale", "budget", "--device", "cpu")
    assert answer.code == 0, answer.err
    assert "direction holds" in answer.out
    assert "300" in answer.out
    result = json.loads(Path("results/E3.json").read_text())
    assert result["claims"][0]["verdict"] == "direction holds"
    assert result["origins"][0]["hardware"]["device"] == "cpu"
    done = len(counting.ran)
    assert run("study", "run", "E3", "--scale", "budget", "--device", "cpu").code == 0
    assert len(counting.ran) == done
    after = run("study", "run", "E3", "--scale", "budget", "--dry-run")
    assert "declared" not in after.out


def test_a_larger_scale_is_not_replaced_by_a_smaller_one(run: Run, counting: Counting) -> None:
    assert run("study", "run", "E3", "--scale", "budget", "--device", "cpu").code == 0
    answer = run("study", "run", "E3", "--scale", "quick", "--device", "cpu", "--runs", "elsewhere")
    assert "holds a complete result" in answer.err
    assert json.loads(Path("results/E3.json").read_text())["scale"] == "budget"
    assert run("study", "run", "E3", "--scale", "paper", "--device", "cpu", "--minutes", "0", "--runs", "new").code == 0
    assert json.loads(Path("results/E3.json").read_text())["scale"] == "budget"  # nothing of paper scale is there


def test_a_run_of_all_goes_by_value_and_is_stopped_and_continued(
    run: Run, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny.study(id="E2", settings={"of": "E2"})
    monkeypatch.setattr(catalog, "declared", lambda: [tiny.study(), first])
    every = ("study", "run", "all", "--scale", "budget", "--device", "cpu")
    each = 20  # trials of a study
    counting.dies_at = each + 3
    assert run(*every).code != 0
    assert [trial.study for trial in counting.ran] == ["E2"] * each + ["E3"] * 3  # E2 is worth more
    counting.dies_at = None
    assert "no result yet of E3" in run(*every, "--minutes", "0").err
    assert not Path("results/E3.json").exists()  # it has no row yet
    answer = run(*every, "--minutes", "60")
    assert (answer.code, len(counting.ran)) == (0, 2 * each)
    assert all(json.loads(Path(f"results/{id}.json").read_text())["complete"] for id in ("E2", "E3"))


def test_seeds_are_added_to_a_stored_result(run: Run, counting: Counting) -> None:
    command = ("study", "run", "E3", "--scale", "budget", "--device", "cpu", "--runs")
    assert run(*command, "lost").code == 0
    counting.ran.clear()
    answer = run(*command, "new", "--seeds", "4", "--reuse")
    assert answer.code == 0, answer.err
    assert {trial.seed for trial in counting.ran} == {3}
    assert json.loads(Path("results/E3.json").read_text())["seeds"] == [0, 1, 2, 3]


def test_a_study_that_could_not_begin_writes_nothing(run: Run, counting: Counting) -> None:
    answer = run("study", "run", "all", "--scale", "budget", "--device", "cpu", "--minutes", "0")
    assert (answer.code, counting.ran) == (0, [])
    assert "no result yet of E3: the same command continues" in answer.err
    assert not Path("results/E3.json").exists()


TINY_WRN = {"name": "wrn-28-10", "depth": 10, "widen": 1, "base": 2, "classes": 2}


@pytest.fixture
def small_e14(monkeypatch: pytest.MonkeyPatch) -> None:
    """E14 with a small network for images of 8 × 8 pixels, two classes and one epoch."""
    from widemargin.studies.elsayed.imagenet import E14
    from widemargin.studies.settings import overlay

    fewer = {"data": {"size": 8, "workers": 0}, "epochs": 1, "batch": 4, "count": 2, "network": TINY_WRN}
    crop, places = {"loss.loss.crop": 2}, {"loss.loss.loss.at": ("input", "output")}
    arms = [
        dataclasses.replace(arm, settings=overlay(arm.settings, crop, places if "l_1" in arm.name else {}))
        for arm in E14.arms
    ]
    scales = {name: dataclasses.replace(scale, settings=fewer) for name, scale in E14.scales.items()}
    small = dataclasses.replace(E14, arms=tuple(arms), scales=scales)
    monkeypatch.setattr(catalog, "study", lambda id: small if id == "E14" else tiny.study())


@pytest.mark.usefixtures("counting", "small_e14")
def test_a_study_without_its_data_is_told_and_the_others_run(run: Run, tmp_path: Path) -> None:
    answer = run("study", "run", "E14", "E3", "--scale", "budget", "--device", "cpu", "--data-root", str(tmp_path))
    assert answer.code == 0, answer.err
    assert "E14 is not run, no data" in answer.err
    assert "train/<class>/*.JPEG" in answer.err
    assert [path.name for path in Path("results").iterdir()] == ["E3.json"]
    alone = run("study", "run", "E14", "--scale", "budget", "--device", "cpu", "--data-root", str(tmp_path))
    assert alone.code == 2


@pytest.mark.usefixtures("small_e14", "untyped")
def test_imagenet_goes_from_its_folders_to_a_verdict(run: Run, tmp_path: Path) -> None:
    from widemargin.studies import result

    assert result.not_run(catalog.study("E14"))["verdict"] == "not run: no data"
    write_images(tmp_path / "imagenet")
    answer = run("study", "run", "E14", "--scale", "budget", "--device", "cpu", "--data-root", str(tmp_path))
    assert answer.code == 0, (answer.err, answer.exception)
    found = json.loads(Path("results/E14.json").read_text())
    assert found["complete"]
    assert found["share"]["ran"] == found["share"]["of"] == 7
    assert {row["arm"] for row in found["rows"]} == {"cross-entropy", "margin l_1", "ours l_1"}
    assert {row["samples"] for row in found["rows"] if "curve" not in row} == {2}
    assert "E14" in run("study", "verdicts").out


def test_our_own_studies_are_run_and_shown_apart(run: Run, counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    one = dataclasses.replace(tiny.study(), id="W1", source="widemargin, few samples")
    monkeypatch.setattr(catalog, "own", lambda: [one])
    assert run("study", "run", "own", "--scale", "budget", "--device", "cpu").code == 0
    answer = run("study", "verdicts")
    assert "Our own studies" in answer.out
    assert "goal missed" in answer.out
    assert "direction holds" not in answer.out
    assert "Studies: 1 not run" in answer.out  # the papers' alone


def test_verdicts_count(run: Run, counting: Counting) -> None:
    Path("results").mkdir()
    assert "1 not run" in run("study", "verdicts").out
    run("study", "run", "all", "--scale", "budget", "--device", "cpu", "--seeds", "4")
    answer = run("study", "verdicts")
    assert "Studies: 1 direction holds" in answer.out
    assert "Claims: 1 direction holds" in answer.out
    assert {trial.seed for trial in counting.ran if trial.stage == "final"} == {0, 1, 2, 3}


def test_stored_rows_are_judged_again_and_the_first_verdict_is_kept(run: Run, counting: Counting) -> None:
    run("study", "run", "E3", "--scale", "budget", "--device", "cpu")
    path, done = Path("results/E3.json"), len(counting.ran)
    written = json.loads(path.read_text())
    assert run("study", "judge", "E3").code == 0
    assert json.loads(path.read_text()) == written  # judged by today's rules before
    old = {key: value for key, value in written.items() if key not in ("word", "weakest", "share", "dead", "paper")}
    path.write_text(json.dumps({**old, "verdict": "not reproduced", "counts": {"not reproduced": 1}}))
    assert "1 direction holds" in run("study", "verdicts").out  # a file of an earlier release is judged as it is read
    answer = run("study", "judge", "all")
    assert answer.code == 0, answer.err
    assert "not reproduced" in answer.out
    found = json.loads(path.read_text())
    assert found["old verdict"]["verdict"] == "not reproduced"
    assert {**found, "old verdict": None} == {**written, "old verdict": None}
    assert run("study", "judge", "E3").code == 0
    assert json.loads(path.read_text()) == found  # the first verdict stays
    run("study", "run", "E3", "--scale", "budget", "--device", "cpu")
    assert json.loads(path.read_text()) == found  # also in a result that replaces it
    assert len(counting.ran) == done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "G3"), "ID: id is 'G3', which is no study"),
        (("show", "E33"), "did you mean E3"),
        (("run", "E3", "--device", "abacus"), "--device is 'abacus'"),
    ],
)
def test_what_a_user_gets_wrong_is_one_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    answer = run("study", *arguments)
    assert (answer.code, answer.exception) == (2, None)
    assert said in answer.err


def test_a_file_that_is_no_result_is_told(run: Run) -> None:
    Path("results").mkdir()
    Path("results/E3.json").write_text("{}")
    answer = run("study", "verdicts")
    assert answer.code == 2
    assert "E3.json has no 'study'" in answer.err


def test_smoke_scale_writes_no_result_unless_it_is_told_where(run: Run, counting: Counting) -> None:
    assert run("study", "run", "E3", "--scale", "smoke", "--device", "cpu").code == 0
    assert not Path("results").exists()
    assert run("study", "run", "E3", "--scale", "smoke", "--device", "cpu", "--results", "tried").code == 0
    assert Path("tried/E3.json").is_file()


def test_the_report_has_a_page_for_every_result(run: Run, counting: Counting) -> None:
    assert run("study", "run", "E3", "--scale", "budget", "--device", "cpu").code == 0
    answer = run("report", "--out", "pages")
    assert answer.code == 0, answer.err
    assert "1 direction holds" in answer.out
    assert {path.name for path in Path("pages").iterdir()} == {"index.html", "holds.html", "E3.html", "scoreboard.svg"}


def test_the_report_names_the_file_and_the_field_that_are_wrong(run: Run, counting: Counting) -> None:
    assert run("study", "run", "E3", "--scale", "budget", "--device", "cpu").code == 0
    path = Path("results/E3.json")
    good = json.loads(path.read_text())
    for change, said in (
        ({"study": "E4"}, "results/E3.json is the result of the study 'E4', expected that of E3"),
        ({"study": "../../escaped"}, "results/E3.json.study"),
        ({"rows": 3}, "results/E3.json.rows is 3"),
        ({"claims": [{}]}, "results/E3.json.claims[0] has no"),
        ({"verdict": None}, "results/E3.json.verdict is None"),
    ):
        path.write_text(json.dumps({**good, **change}))
        answer = run("report", "--out", "pages")
        assert (answer.code, answer.exception) == (2, None)
        assert said in answer.err
        assert "--out" not in answer.err
        assert not Path("pages").exists()
    path.write_text("[" * 100_000)
    assert "results/E3.json has values inside values too deep" in run("study", "verdicts").err


def test_a_missing_folder_of_results_is_told(run: Run) -> None:
    for command in (("report",), ("study", "verdicts")):
        answer = run(*command, "--results", "nowhere")
        assert (answer.code, answer.exception) == (2, None)
        assert "--results is 'nowhere', which is not a folder" in answer.err


def test_folders_that_can_not_be_written_are_told_before_the_work(run: Run, counting: Counting) -> None:
    Path("file").touch()
    for option in ("--results", "--runs"):
        answer = run("study", "run", "E3", "--scale", "budget", "--device", "cpu", option, "file")
        assert (answer.code, answer.exception) == (2, None)
        assert f"{option} is 'file', which is a file" in answer.err
        answer = run("study", "run", "E3", "--scale", "budget", "--device", "cpu", option, "/proc/no")
        assert f"{option} is '/proc/no', where no file can be written" in answer.err
    assert counting.ran == []
    Path("results").mkdir()
    assert "--out is 'file', which is a file" in run("report", "--out", "file").err
