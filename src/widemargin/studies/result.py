"""Results of studies as plain values: claims with verdicts, rows, chosen hyperparameters and provenance."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from widemargin._io.files import write_json
from widemargin._io.typed_json import read_json
from widemargin.report.study_schema import check_study
from widemargin.studies import verdict
from widemargin.studies.expand import StudyPlan
from widemargin.studies.rows import AXES, flatten
from widemargin.studies.schema import SCALES, Study
from widemargin.studies.settings import Settings, plain
from widemargin.studies.trial import Trial

Result: TypeAlias = dict[str, Any]
"""Plain values, as `results/<ID>.json` holds them."""


def of(
    plan: StudyPlan,
    *,
    rows: Sequence[tuple[str, Trial, Settings]],
    records: Sequence[Settings],
    chosen: Settings,
    searched: Sequence[Settings],
    complete: bool,
) -> Result:
    """All that `results/<ID>.json` holds; `records` are those of the trials that it rests on."""
    study, scale = plan.study, plan.scale
    flat = [row for arm, trial, measured in rows for row in flatten(arm, trial.seed, trial.condition, measured)]
    judged = [(claim, claim.effect.of(flat, claim.factor)) for claim in study.claims]
    verdicts = [verdict.judge(claim, measured) for claim, measured in judged]
    word = verdict.overall(verdicts)
    origins = {json.dumps(record["origin"], sort_keys=True): record["origin"] for record in records}
    return {
        **_names(study),
        "scale": plan.name,
        "complete": complete,
        "verdict": f"reproduced at {plan.name}" if word == "reproduced" and plan.name != "paper" else word,
        "counts": dict(Counter(one.at(plan.name) for one in verdicts)),
        "claims": [verdict.describe(claim, measured, plan.name) for claim, measured in judged],
        "seeds": list(range(plan.seeds)),
        "search": {
            "cells": scale.cells,
            "seeds": scale.search_seeds if scale.cells > 1 else 0,
            "at": None if scale.search_at is None else plain(scale.search_at),
            "by": study.choose_by,
            "table": plain(list(searched)),
        },
        "chosen": plain(chosen),
        "arms": [
            {"name": arm.name, "ours": arm.ours} for arm in study.arms if scale.arms is None or arm.name in scale.arms
        ],
        "axes": list(study.axes),
        "figures": [dataclasses.asdict(figure) for figure in study.figures],
        "deviations": list(study.deviations),
        "scale note": scale.note,
        "declared minutes": scale.minutes,
        "trials": len(records),
        "trial minutes": round(sum(record["seconds"] for record in records) / 60, 2),
        "origins": list(origins.values()),
        "command": f"widemargin study run {study.id} --scale {plan.name}",
        "rows": [{key: value for key, value in row.items() if key != AXES} for row in flat],
    }


def write(result: Settings, folder: Path = Path("results")) -> Path | None:
    """Write `<ID>.json`; None where a complete result, or one of a larger scale, would be replaced by a lesser one."""
    path = folder / f"{result['study']}.json"
    if path.is_file() and _rank(read(path)) > _rank(result):
        return None
    return write_json(path, result)


def read(path: Path) -> Result:
    """A result file, checked; `<ID>.json` has to be the result of that study."""
    result: Result = read_json(path)
    check_study(result, str(path))
    if result["study"] != path.stem:
        raise ValueError(f"{path} is the result of the study {result['study']!r}, expected that of {path.stem}")
    if "rows" not in result:
        raise ValueError(f"{path} has no 'rows', expected those of a result")
    return result


def not_run(study: Study) -> Result:
    """The paper's side of a study that has no result."""
    return {
        **_names(study),
        "scale": None,
        "verdict": "not run",
        "counts": {"not run": len(study.claims)},
        "claims": [verdict.describe(claim, None, "paper") for claim in study.claims],
        "deviations": list(study.deviations),
        "command": f"widemargin study run {study.id} --scale budget",
    }


def _names(study: Study) -> Result:
    return {"study": study.id, "source": study.source, "title": study.title, "question": study.question}


def _rank(result: Settings) -> tuple[bool, int]:
    return bool(result["complete"]), SCALES.index(result["scale"])
