"""Search, choose, final trials, claims; and what happens when it is stopped in between."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from studies import tiny
from studies.tiny import Counting
from widemargin.studies import engines, tasks
from widemargin.studies.run import Estimate, estimate, plan_of, run
from widemargin.studies.schema import Arm, Scale

SEARCH = 2 * 2 * 2  # arms, cells, conditions
FINAL = 2 * 3 * 2  # arms, seeds, conditions


def test_the_best_cell_is_chosen_and_only_it_is_tested(counting: Counting, tmp_path: Path) -> None:
    found = run(tiny.study(), "budget", folder=tmp_path)
    assert found["chosen"]["a at noise 0.0"] == {"x": 2.0}  # 3.0 is beyond the two cells of this scale
    assert found["chosen"]["b at noise 0.1"] == {"x": 5.0}
    stages = [trial.stage for trial in counting.ran]
    assert stages == ["search"] * SEARCH + ["final"] * FINAL
    assert {t.settings["x"] for t in counting.ran if t.stage == "final"} == {2.0, 5.0}
    assert {t.seed for t in counting.ran if t.stage == "final"} == {0, 1, 2}
    assert {t.seed for t in counting.ran if t.stage == "search"} == {100}
    claim = found["claims"][0]
    assert claim["measured"] == pytest.approx(300)
    assert claim["sd"] == pytest.approx(0, abs=1e-9)
    assert (claim["verdict"], found["verdict"], found["complete"]) == ("direction holds", "direction holds", True)
    assert len(found["rows"]) == 2 * FINAL  # a row and a point of a curve each
    assert found["seeds"] == [0, 1, 2]
    searched = {"at": "a at noise 0.0", "cell": {"x": 2.0}, "validation": 3.0, "died": 0, "seeds": 1}
    assert found["search"]["table"][1] == searched


def test_a_cell_is_refused_where_a_search_seed_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(Counting):
        def run(self, trial: Any, context: Any) -> dict[str, Any]:
            row = super().run(trial, context)
            dies = trial.stage == "search" and trial.settings["x"] in self.fragile and trial.seed == 101
            return {"validation": 0.1} if dies else row

        fragile: tuple[float, ...] = (2.0,)

    task, find = Fragile(), tasks.find
    monkeypatch.setattr(tasks, "find", lambda name: task if name == "counting" else find(name))
    scale = Scale(minutes=1, cells=2, search_seeds=3)
    found = run(tiny.study(scale=scale), "budget", folder=tmp_path / "one")
    assert found["chosen"]["a at noise 0.0"] == {"x": 1.0}
    assert [row["died"] for row in found["search"]["table"][:2]] == [0, 1]
    task.fragile = (1.0, 2.0)  # one died in every cell: the best of them is taken
    found = run(tiny.study(scale=scale), "budget", folder=tmp_path / "two")
    assert found["chosen"]["a at noise 0.0"] == {"x": 2.0}


def test_the_smallest_is_chosen_where_the_study_says_so(counting: Counting, tmp_path: Path) -> None:
    found = run(tiny.study(smallest=True), "budget", folder=tmp_path)
    assert found["chosen"]["a at noise 0.0"] == {"x": 1.0}
    assert found["chosen"]["b at noise 0.0"] == {"x": 4.0}


def test_a_search_at_one_condition_serves_all(counting: Counting, tmp_path: Path) -> None:
    scale = Scale(minutes=1, cells=2, search_at={"noise": 0.1}, search_seeds=2)
    found = run(tiny.study(scale=scale), "budget", folder=tmp_path)
    searched = [trial for trial in counting.ran if trial.stage == "search"]
    assert len(searched) == 2 * 2 * 2
    assert {trial.settings["noise"] for trial in searched} == {0.1}
    assert {trial.seed for trial in searched} == {100, 101}
    assert found["chosen"]["a at noise 0.0"] == found["chosen"]["a at noise 0.1"] == {"x": 2.0}


def test_a_repeated_run_does_nothing_and_gives_the_same(counting: Counting, tmp_path: Path) -> None:
    first = run(tiny.study(), "budget", folder=tmp_path)
    counting.ran.clear()
    assert run(tiny.study(), "budget", folder=tmp_path) == first
    assert counting.ran == []


@pytest.mark.parametrize("dies_at", [0, 3, SEARCH, SEARCH + 5])
def test_a_killed_run_goes_on_where_it_was(counting: Counting, tmp_path: Path, dies_at: int) -> None:
    counting.dies_at = dies_at
    with pytest.raises(KeyboardInterrupt):
        run(tiny.study(), "budget", folder=tmp_path)
    counting.dies_at = None
    found = run(tiny.study(), "budget", folder=tmp_path)
    assert len(counting.ran) == SEARCH + FINAL
    assert found["complete"]
    assert {k: v for k, v in found.items() if k != "trial minutes"} == {
        k: v for k, v in run(tiny.study(), "budget", folder=tmp_path / "other").items() if k != "trial minutes"
    }


def test_changed_settings_rerun_only_what_changed(counting: Counting, tmp_path: Path) -> None:
    run(tiny.study(), "budget", folder=tmp_path)
    counting.ran.clear()
    arms = (tiny.study().arms[0], Arm(name="b", search={"x": (5.0, 4.5)}))
    run(tiny.study(arms=arms), "budget", folder=tmp_path)
    assert [(t.arm, t.stage, t.settings["x"]) for t in counting.ran] == [("b", "search", 4.5)] * 2
    counting.ran.clear()
    run(tiny.study(), "budget", folder=tmp_path, seeds=4)
    assert [(trial.seed, trial.stage) for trial in counting.ran] == [(3, "final")] * 4


def test_what_another_study_has_finished_is_not_run_again(counting: Counting, tmp_path: Path) -> None:
    first = run(tiny.study(), "budget", folder=tmp_path)
    counting.ran.clear()
    other = run(tiny.study(id="E4"), "budget", folder=tmp_path, seeds=4)
    assert [(trial.seed, trial.stage) for trial in counting.ran] == [(3, "final")] * 4
    assert [row for row in other["rows"] if row["seed"] < 3] == first["rows"]
    with (tmp_path / "E4.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key": "torn')
    counting.ran.clear()
    assert run(tiny.study(id="E2"), "budget", folder=tmp_path, seeds=4)["complete"]
    assert counting.ran == []


def test_a_stored_result_is_continued_where_its_trials_are_lost(counting: Counting, tmp_path: Path) -> None:
    first = run(tiny.study(), "budget", folder=tmp_path / "lost")
    stored = json.loads(json.dumps(first))
    counting.ran.clear()
    again = run(tiny.study(), "budget", folder=tmp_path / "new", earlier=stored)
    assert counting.ran == []
    assert {key: value for key, value in again.items() if key != "trial minutes"} == {
        key: value for key, value in stored.items() if key != "trial minutes"
    }
    more = run(tiny.study(), "budget", folder=tmp_path / "new", seeds=4)
    assert [(trial.seed, trial.stage) for trial in counting.ran] == [(3, "final")] * 4
    assert len(more["rows"]) == len(first["rows"]) * 4 // 3
    counting.VERSION, of_before = 2, {k: v for k, v in stored.items() if k not in ("keys", "searches")}
    for earlier in (stored, of_before):  # of another version of the task, and of an earlier release
        counting.ran.clear()
        run(tiny.study(), "budget", folder=tmp_path / f"{len(earlier)}", earlier=earlier)
        assert len(counting.ran) == SEARCH + FINAL


def test_another_version_of_the_task_reruns_all(counting: Counting, tmp_path: Path) -> None:
    run(tiny.study(), "budget", folder=tmp_path)
    counting.VERSION = 2
    run(tiny.study(), "budget", folder=tmp_path)
    assert len(counting.ran) == 2 * (SEARCH + FINAL)


def test_a_limit_in_time_stops_cleanly(counting: Counting, tmp_path: Path) -> None:
    found = run(tiny.study(), "budget", folder=tmp_path, minutes=0.0)
    assert counting.ran == []
    assert (found["complete"], found["verdict"], found["rows"]) == (False, "not run", [])
    found = run(tiny.study(), "budget", folder=tmp_path, minutes=1e-9)
    assert not found["complete"]
    assert run(tiny.study(), "budget", folder=tmp_path)["complete"]


def test_measure_is_for_the_final_stage_and_other_arms_are_resolved(counting: Counting, tmp_path: Path) -> None:
    arms = (
        Arm(name="a", settings={"measure": [{"source": {"arm": "b"}}]}, search={"x": (1.0, 2.0)}),
        Arm(name="b", settings={"measure": [1]}, search={"x": (5.0, 4.0)}),
    )
    run(tiny.study(arms=arms), "budget", folder=tmp_path)
    assert not any("measure" in trial.settings for trial in counting.ran if trial.stage == "search")
    finals = [t for t in counting.ran if t.stage == "final" and t.arm == "a" and t.condition == {"noise": 0.1}]
    assert len(finals) == 3
    assert all(trial.settings["measure"] == [{"source": {"x": 5.0, "noise": 0.1}}] for trial in finals)


def test_equal_trials_of_two_arms_run_once(counting: Counting, tmp_path: Path) -> None:
    arms = (Arm(name="a", settings={"x": 1.0}), Arm(name="b", settings={"x": 1.0}))
    found = run(tiny.study(arms=arms), "budget", folder=tmp_path)
    assert len(counting.ran) == FINAL // 2
    assert len(found["rows"]) == 2 * FINAL
    assert found["claims"][0]["measured"] == 0


def test_an_estimate_counts_and_knows_what_was_measured(counting: Counting, tmp_path: Path) -> None:
    plan = plan_of(tiny.study(), "budget")
    declared = estimate(plan, tmp_path)
    assert dataclasses.replace(declared, minutes=round(declared.minutes, 9)) == Estimate(
        search=SEARCH, final=FINAL, done=0, minutes=1.0, measured=False
    )
    counting.dies_at = SEARCH + 2
    with pytest.raises(KeyboardInterrupt):
        run(tiny.study(), "budget", folder=tmp_path)
    left = estimate(plan, tmp_path)
    assert (left.search, left.final, left.done, left.measured) == (0, FINAL - 2, SEARCH + 2, True)


def test_only_some_conditions_and_arms(counting: Counting, tmp_path: Path) -> None:
    scale = Scale(minutes=1, only={"noise": (0.1,)}, arms=("a",), settings={"x": 1.0})
    found = run(tiny.study(scale=scale, arms=(Arm(name="a"), Arm(name="b"))), "budget", folder=tmp_path)
    assert {(t.arm, t.settings["noise"], t.stage) for t in counting.ran} == {("a", 0.1, "final")}
    assert found["verdict"] == "not run"
    assert [arm["name"] for arm in found["arms"]] == ["a"]


@pytest.mark.parametrize(("arguments", "said"), [(("huge",), "scale is 'huge'"), (("paper", 0), "seeds is 0")])
@pytest.mark.usefixtures("untyped")
def test_what_is_asked_for_wrongly(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan_of(tiny.study(), *arguments)


def test_an_engine_by_its_name() -> None:
    assert engines.engine("population") is engines.populations
