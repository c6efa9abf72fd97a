from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from step_cost import Settings, fit, run
from step_cost.cases import ALL, CNN, ESTIMATED, GRAPHS, JACOBIAN, STRONGEST, WIDE, WIDE_GRAPHS, Case, cases
from step_cost.methods import Methods
from step_cost.rows import measure_row
from step_cost.timing import in_turns, ratios
from widemargin.places import check_places

TINY = Case(
    label="tiny",
    network="elsayed-mnist-cnn",
    build={"size": 8, "widths": (3, 4), "hidden": (8, 8)},
    shape=(1, 8, 8),
    classes=4,
    places=CNN,
    batch=6,
    methods=(),
)


def gradients(case: Case, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    network = case.make().to(dtype)
    x, y = torch.rand(case.batch, *case.shape, dtype=dtype), torch.randint(case.classes, (case.batch,))
    Methods(case, network, x, y).step(name)()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    ("methods", "case"),
    [
        (STRONGEST[:3], TINY),
        (STRONGEST[3:], TINY),
        ((*ALL, "a backward per place and class"), TINY),
        (
            JACOBIAN,
            Case(
                label="",
                network="sokolic-mlp",
                build={"inputs": 9, "first": 9, "higher": 6},
                classes=4,
                shape=(9,),
                places=("input",),
                batch=5,
                methods=(),
            ),
        ),
    ],
)
def test_methods_that_are_compared_do_the_same(methods: tuple[str, ...], case: Case) -> None:
    first, *others = (gradients(case, name) for name in methods)
    assert first.abs().max() > 0
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-3, atol=1e-5)


def test_a_row_has_every_way_with_cross_entropy_as_its_unit() -> None:
    case = Case(**{**vars(TINY), "methods": (*STRONGEST, *ESTIMATED)})
    row = measure_row(case, Settings(rounds=1))
    assert set(row["ratio"]) == {"cross-entropy", *STRONGEST, *ESTIMATED}
    assert row["ratio"]["cross-entropy"] == 1
    assert all(took > 0 for took in row["milliseconds"].values())
    assert row["failed"] == {}
    assert row["said"]["margin_backward"].startswith("two backwards")


def test_a_way_that_fails_is_said_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Methods) -> Any:
        raise RuntimeError("no second derivative\nat all")

    monkeypatch.setattr(Methods, "_jacobian", fail)
    row = measure_row(Case(**{**vars(TINY), "methods": ("plain autograd", "Jacobian regularizer")}), Settings(rounds=1))
    assert row["failed"] == {"Jacobian regularizer": "no second derivative"}
    assert set(row["ratio"]) == {"cross-entropy", "plain autograd"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_places_and_methods_of_every_row_are_known(device: str) -> None:
    """Also of the rows of a GPU, whose networks are built here without their weights."""
    rows = list(cases(Settings(device=device)))
    assert len({case.label for case in rows}) == len(rows)
    known = {*STRONGEST, *ALL, *ESTIMATED, *JACOBIAN, "cross-entropy"}
    known |= {"a backward per place and class", *GRAPHS, *WIDE, *WIDE_GRAPHS}
    for case in rows:
        assert {case.base, *case.methods} <= known
        assert len(case.methods) > 0
        try:
            with torch.device("meta"):
                network = case.make()
        except ImportError:
            continue
        assert check_places(network, case.places) == case.places
        with torch.device("meta"):
            assert network.eval()(torch.empty(2, *case.shape)).shape == (2, case.classes)


def test_what_is_known_is_written_after_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "deep" / "bench.json", []
    monkeypatch.setattr("step_cost.rows.cases", lambda _: iter([TINY, Case(**{**vars(TINY), "label": "other"})]))

    def on_row(row: dict[str, Any]) -> None:
        seen.append((row["label"], len(json.loads(path.read_text())["rows"]) if path.exists() else 0))

    result = run(Settings(rounds=1), path, on_row=on_row)
    assert seen == [("tiny", 0), ("other", 1)]
    assert json.loads(path.read_text())["rows"] == json.loads(json.dumps(result["rows"]))
    assert {"commit", "versions", "hardware", "goals"} <= set(result)
    assert run(Settings(rounds=1, only="oth"), path)["rows"][0]["label"] == "other"
    assert run(Settings(rounds=1, minutes=1e-9), path)["left out"] == ["tiny", "other"]
    with pytest.raises(ValueError, match="only is 'nothing'"):
        run(Settings(only="nothing"), path)


def test_threads_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("step_cost.rows.cases", lambda _: iter([TINY]))
    before = torch.get_num_threads(), torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    run(Settings(rounds=1), tmp_path / "bench.json")
    assert (torch.get_num_threads(), torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32) == before


def test_ratios_are_taken_within_a_round() -> None:
    found = ratios({"a": [1.0, 10.0, 2.0], "b": [2.0, 20.0, 4.0]}, "a")
    assert found == {"seconds": {"a": 2.0, "b": 4.0}, "ratio": {"a": 1.0, "b": 2.0}}
    order: list[str] = []
    times = in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, "cpu", 2)
    assert order == ["a", "b"] * 3  # the first round warms up
    assert {name: len(values) for name, values in times.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"rounds": 0}, "rounds is 0"), ({"steps": True}, "steps is True"), ({"minutes": 0.0}, "minutes is 0.0")],
)
@pytest.mark.usefixtures("untyped")
def test_bad_settings_get_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        Settings(**settings)


def test_steps_of_fit_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "BATCH", 4)
    monkeypatch.setattr(fit, "STEPS", 1)
    row = fit.measure_fit(Settings(rounds=1))
    assert set(row["ratio"]) == {
        f"{loss}{way}" for loss in ("cross-entropy", "margin loss") for way in ("", ", CUDA graph")
    }
    assert row["ratio"]["cross-entropy"] == 1
    assert row["said"]["margin loss"].startswith("split backward")
