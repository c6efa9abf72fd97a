"""Results of studies as plain values: claims with verdicts, rows, chosen hyperparameters and provenance."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from widemargin._io.files import write_json
from widemargin._io.typed_json import read_json
from widemargin.report.study_schema import check_study
from widemargin.studies import dead_seeds, power, verdict
from widemargin.studies.effects import Value
from widemargin.studies.expand import StudyPlan
from widemargin.studies.rows import AXES, Row, flatten
from widemargin.studies.schema import SCALES, ScaleName, Study
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
    origins = {json.dumps(record["origin"], sort_keys=True): record["origin"] for record in records}
    numbers = {text: number for number, text in enumerate(origins)}
    ran = {record["key"]: numbers[json.dumps(record["origin"], sort_keys=True)] for record in records}
    return {
        **_names(study),
        "scale": plan.name,
        "complete": complete,
        **judged(study, flat, plan.name),
        "seeds": list(plan.final_seeds),
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
        "curves": _curves(flat),
        **_shown(study),
        "scale note": scale.note,
        "declared minutes": scale.minutes,
        "trials": len(records),
        "trial minutes": round(sum(record["seconds"] for record in records) / 60, 2),
        "origins": list(origins.values()),
        "command": f"widemargin study run {study.id} --scale {plan.name}",
        "searches": [
            {"key": record["key"], "origin": ran[record["key"]], "row": record["row"]}
            for record in records
            if record["trial"]["stage"] == "search"
        ],
        "keys": [{"key": trial.key, "origin": ran[trial.key]} for _, trial, _ in rows],
        "rows": [{key: value for key, value in row.items() if key != AXES} for row in flat],
    }


def finished(stored: Settings) -> Iterator[Settings]:
    """The trials that a stored result rests on, as `Store` keeps them; none of a file of an earlier release."""
    seconds = 60 * stored["trial minutes"] / max(1, stored["trials"])
    named = ("arm", "seed", "curve", *stored["axes"])
    finals: list[Row] = []
    for row in stored["rows"] if "keys" in stored else ():
        if "curve" not in row:
            finals.append({key: value for key, value in row.items() if key not in named})
            continue
        at = stored["curves"][row["curve"]]
        values = {key: value for key, value in row.items() if key not in (*named, *at)}
        finals[-1].setdefault("points", []).append(
            {"curve": row["curve"], "at": {key: row[key] for key in at}, **values}
        )
    final = [{**key, "row": row} for key, row in zip(stored.get("keys", ()), finals, strict=True)]
    for stage, trials in (("search", stored.get("searches", ())), ("final", final)):
        for trial in trials:
            yield {
                "key": trial["key"],
                "trial": {"study": stored["study"], "scale": stored["scale"], "stage": stage},
                "row": trial["row"],
                "seconds": round(seconds, 3),
                "origin": stored["origins"][trial["origin"]],
            }


def judged(study: Study, rows: Sequence[Row], scale: ScaleName) -> Result:
    """The claims with their verdicts, the study's, and the counts: `of` all claims, how many `ran` and `hold`.

    `rows` name their axes, as `rows.flatten` makes them. Comparisons of ours are in no count.
    """
    axes = tuple(study.axes)
    living, dead = dead_seeds.split(rows, study.classes, axes)
    claims: list[Row] = []
    verdicts: list[verdict.Verdict] = []
    for claim in study.claims:
        measured = claim.effect.of(living, claim.factor)
        where = getattr(claim.effect, "where", {})
        died = dead_seeds.counts(rows, dead, axes, claim.effect.arms, where)
        found = power.checked(verdict.judge(claim, measured, died), claim, measured, living, scale, axes)
        claims.append(verdict.describe(claim, measured, found, scale, died))
        if not claim.ours:
            verdicts.append(found)
    words = Counter(one.word for one in verdicts)
    ran = len(verdicts) - words["not run"]
    partly = ", partly run" if 0 < ran < len(verdicts) else ""
    word = verdict.overall(verdicts)
    return {
        "verdict": f"{verdict.at_scale(word, scale)}{partly}",
        "word": word,
        "weakest": verdict.weakest(verdicts),
        "share": {"of": len(verdicts), "ran": ran, "hold": words["reproduced"] + words["direction holds"]},
        "counts": dict(Counter(one.at(scale) for one in verdicts)),
        "dead": {arm: list(both) for arm, both in dead_seeds.counts(rows, dead, axes, (), {}).items()},
        "dead trials": [
            {"arm": arm, "seed": seed, **dict(condition)} for arm, seed, condition in sorted(dead, key=str)
        ],
        "claims": claims,
    }


def rejudge(study: Study, stored: Settings) -> Result:
    """A stored result with the verdicts, claims and figures of today's declaration; its rows are untouched.

    The verdicts of a file from before today's rules, which has no `"word"`, are kept under `"old verdict"`.
    """
    old = {} if "word" in stored else {"old verdict": _verdicts(stored)}
    rows = dead_seeds.with_axes(stored["rows"], stored.get("axes", []), stored.get("curves", {}))
    fresh = {**_names(study), **judged(study, rows, stored["scale"]), **_shown(study)}
    changed = {**old, **stored, **fresh, "deviations": stored["deviations"]}  # those of what ran
    return {key: changed[key] for key in (*(key for key in changed if key != "rows"), "rows")}


def _verdicts(stored: Settings) -> Settings:
    claims = [{key: claim[key] for key in ("text", "verdict")} for claim in stored["claims"]]
    return {"verdict": stored["verdict"], "counts": stored["counts"], "claims": claims}


def write(result: Settings, folder: Path = Path("results")) -> Path | None:
    """Write `<ID>.json`; None where a complete result, or one of a larger scale, would be replaced by a lesser one.

    The `"old verdict"` of the file that is replaced is kept, see `rejudge`.
    """
    path = folder / f"{result['study']}.json"
    before = read(path) if path.is_file() else None
    if before is not None and _rank(before) > _rank(result):
        return None
    kept = {} if before is None or "old verdict" not in before else {"old verdict": before["old verdict"]}
    return write_json(path, {**kept, **result})


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
        **judged(study, [], "paper"),
        **({"verdict": "not run: no data"} if study.not_free else {}),
        **_shown(study),
        "command": f"widemargin study run {study.id} --scale budget",
    }


def _names(study: Study) -> Result:
    return {"study": study.id, "source": study.source, "title": study.title, "question": study.question}


def _shown(study: Study) -> Result:
    """What a page shows of the declaration: figures, the paper's numbers, deviations."""
    return {
        "figures": [dataclasses.asdict(figure) for figure in study.figures],
        "paper": plain(list(reported(study))),
        "deviations": list(study.deviations),
    }


def reported(study: Study) -> list[Row]:
    """The numbers that the paper prints, as rows: those of the claims, and `study.paper`."""
    rows = []
    for claim in study.claims:
        effect = claim.effect
        if isinstance(effect, Value) and not claim.ours and claim.side == "both" and claim.reported is not None:
            at = {key: value for key, value in effect.where.items() if not isinstance(value, (tuple, list))}
            if len(at) == len(effect.where):
                rows.append({"arm": effect.arm, **at, effect.metric: claim.reported / claim.factor})
    return [*rows, *(dict(row) for row in study.paper)]


def _curves(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Curve → the axes of its points."""
    return {row["curve"]: list(row[AXES][row[AXES].index("curve") + 1 :]) for row in rows if "curve" in row}


def _rank(result: Settings) -> tuple[bool, int]:
    return bool(result["complete"]), SCALES.index(result["scale"])
