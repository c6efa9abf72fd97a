"""From finished jobs to results/grid.json: means over seeds of every setting, and the table of all arms.

A setting is a task, a network, an optimizer and its learning rate. It counts where cross-entropy trains: where its mean
test accuracy is 10 points above the share of the most common class. A dead run, whose scores are not finite, has that
share as its accuracy.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from default_grid.arms import ARMS, BASE, DEFAULT, MMA
from default_grid.evaluation import ATTACKED, MEASURED, RADII, STEPS
from default_grid.jobs import BATCH
from default_grid.mma import D_MAX
from default_grid.networks import NETWORKS
from default_grid.tasks import TASKS
from widemargin._io.files import write_json

TRAINS, WITHIN, STUCK = 0.10, 1.0, 0.02
COMMON_SHARE = {"breast_cancer": 0.63, "wine": 0.4, "iris": 0.33}
"""The share of the most common class; 0.1 in the others."""

SHOWN = (DEFAULT, "jacobian", "wide margin, share 1/8")
"""Arms of the printed tables by network and task; all are in the file."""

KEYS = ("task", "network", "optimizer", "lr")
Cell = dict[str, Any]
Table = dict[str, dict[str, Any]]


def summarise(lines: Sequence[dict[str, Any]], out: Path) -> None:
    """Write results/grid.json, and print its tables."""
    if not lines:
        raise SystemExit("there are no finished jobs: name their file with --rows")
    table = cells(lines)
    tables: dict[str, Any] = {"all": arms_of(table)}
    tables["by network"] = {name: arms_of(_where(table, "network", name)) for name in _present(table, NETWORKS)}
    tables["by task"] = {name: arms_of(_where(table, "task", name)) for name in _present(table, TASKS)}
    tables["beside the default"] = beside_the_default(table)
    tables["above the best baseline"] = above_the_best_baseline(table)
    tables["above the baseline of the other seeds"] = above_the_baseline_of_the_other_seeds(lines)
    tables["goals"] = goals(tables)
    write_json(out, {"settings": _settings(lines), **_provenance(lines), **tables, "cells": table})
    print_tables(tables)


def cells(lines: Iterable[dict[str, Any]]) -> list[Cell]:
    """A row of means over the seeds for every setting and arm."""
    groups = _runs(lines)
    return [_cell(key, runs, groups.get((*key[:-1], BASE), {})) for key, runs in groups.items()]


def arms_of(table: Iterable[Cell]) -> Table:
    """What the goals ask for, by arm, over the settings where cross-entropy trains."""
    settings = [group for group in _by_setting(table).values() if BASE in group and counts(group[BASE])]
    return {
        arm: _row(arm, [group for group in settings if _is_paired(arm, group)]) for arm in ARMS if _has(arm, settings)
    }


def beside_the_default(table: Iterable[Cell]) -> dict[str, Table]:
    """By arm: its row, and that of the default, over the settings that both have run."""
    groups = [list(group.values()) for group in _by_setting(table).values() if DEFAULT in group]
    both = {arm: arms_of(c for group in groups if arm in {c["arm"] for c in group} for c in group) for arm in ARMS}
    return {
        arm: {"arm": rows[arm], "default": rows[DEFAULT]}
        for arm, rows in both.items()
        if arm not in (BASE, DEFAULT) and arm in rows and DEFAULT in rows
    }


def above_the_best_baseline(table: Iterable[Cell]) -> float | None:
    """Points of the default above the best baseline of each setting, on average over those where several ran."""
    above = []
    for group in _by_setting(table).values():
        if BASE in group and counts(group[BASE]) and _is_paired(DEFAULT, group):
            gains = [_gain(cell) for arm, cell in group.items() if ARMS[arm].is_baseline and _is_paired(arm, group)]
            above += [_gain(group[DEFAULT]) - max(gains)] if len(gains) > 1 else []
    return _mean(above)


def above_the_baseline_of_the_other_seeds(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Points of the default above the best baseline of each setting, where luck does not make it the best.

    The best of several means over few seeds is too high. Here each seed is compared with the baseline that is the best
    one over the other seeds, among those with two seeds or more, and beside it with the best one over all seeds.
    """
    groups = _runs(lines)
    settings = {key[:-1] for key, runs in groups.items() if key[-1] == BASE and counts(_cell(key, runs, {}))}
    above, same = [], []
    for setting in settings:
        arms = {arm: _accuracies(setting[0], groups[*setting, arm]) for arm in ARMS if (*setting, arm) in groups}
        rivals = {arm: by_seed for arm, by_seed in arms.items() if ARMS[arm].is_baseline and len(by_seed) > 1}
        seeds = set(arms.get(DEFAULT, {})).intersection(*rivals.values())
        if len(rivals) < 2 or len(seeds) < 2:
            continue
        gaps = {arm: {seed: arms[DEFAULT][seed] - by_seed[seed] for seed in seeds} for arm, by_seed in rivals.items()}
        same.append(min(statistics.fmean(gap.values()) for gap in gaps.values()))
        chosen = {s: min(gaps, key=lambda arm: sum(v for t, v in gaps[arm].items() if t != s)) for s in seeds}
        above.append(statistics.fmean(gaps[arm][seed] for seed, arm in chosen.items()))
    return {"settings": len(above), "points": _mean(above), "of the same, chosen by all seeds": _mean(same)}


def counts(base: Cell) -> bool:
    """Whether a setting counts: cross-entropy, whose cell is `base`, trains."""
    return bool(base["accuracy"] >= _floor(base["task"]) + TRAINS)


def half_radius(accuracies: Sequence[float]) -> float:
    """The radius at which the accuracy falls to one half of that without attack; the largest where it never does.

    The accuracy is linear between the radii of the attacks.
    """
    goal = accuracies[0] / 2
    for (r0, a0), (r1, a1) in itertools.pairwise(zip(RADII, accuracies)):
        if a1 <= goal < a0:
            return r0 + (r1 - r0) * (a0 - goal) / (a0 - a1)
    return RADII[-1]


def at_radius(accuracies: Sequence[float], radius: float) -> float:
    """The accuracy at any radius, linear between those of the attacks."""
    for (r0, a0), (r1, a1) in itertools.pairwise(zip(RADII, accuracies)):
        if r0 <= radius <= r1:
            return a0 + (a1 - a0) * (radius - r0) / (r1 - r0)
    return accuracies[-1]


def goals(tables: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals of the default, what was measured, and whether they are met."""
    row, above = tables["all"].get(DEFAULT), tables["above the best baseline"]
    if row is None:
        return []
    measured = (
        ("within 1 point of cross-entropy or above, share of the settings", 0.97, row["within 1 point"]),
        ("mean gain at no more than 1,000 samples, points", 3.0, row["gain, few samples"]),
        ("mean gain with 40 % flips, points", 6.0, row["gain, flips"]),
        ("mean accuracy above the best baseline's of each setting, points", -0.5, above),
        ("median ratio of the distances", 2.0, row["distance ratio"]),
        ("accuracy under attack at the radius that halves cross-entropy's, points", 15.0, row["attacked, points"]),
        ("runs that are not finite, or at chance where cross-entropy trains", 0, row["not finite"] + row["stuck"]),
    )
    return [
        {"goal": goal, "threshold": least, "measured": value, "met": _is_met(least, value)}
        for goal, least, value in measured
    ]


def print_tables(tables: dict[str, Any]) -> None:
    """The tables as text."""
    parts = {"all": tables["all"], **tables["by network"], **tables["by task"]}
    names = [name for name in next(iter(tables["all"].values()), {}) if name != "worst"]
    print(f"{'settings':20s}{'arm':27s}" + "".join(f"{name.replace('gain, ', ''):>17s}" for name in names))
    for title, table in parts.items():
        for arm, row in table.items():
            if title == "all" or arm in SHOWN:
                print(f"{title:20s}{arm:27s}" + "".join(f"{_text(row[name]):>17s}" for name in names))
    for arm, row in tables["all"].items():
        print(f"largest losses of {arm}: " + "; ".join(f"{w['gain']:+.1f} {w['setting']}" for w in row["worst"][:6]))
    for arm, pair in tables["beside the default"].items():
        print(f"{arm}: {_text(pair['arm']['gain'])}, the default there: {_text(pair['default']['gain'])}")
    for goal in tables["goals"]:
        print(f"{'met' if goal['met'] else 'MISSED'}: {goal['goal']}: {_text(goal['measured'])} ({goal['threshold']})")


def _runs(lines: Iterable[dict[str, Any]]) -> dict[tuple[Any, ...], dict[int, dict[str, Any]]]:
    """By task, network, optimizer, learning rate and arm: the runs by their seeds."""
    groups: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        for run in line["runs"]:
            key = line["task"], line["network"], line["optimizer"], run["lr"], line["arm"]
            groups[key].setdefault(run["seed"], run)  # the first one, where a job was run twice
    return groups


def _accuracies(task: str, runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """In points, by seed."""
    return {seed: 100 * (_floor(task) if run["dead"] else run["accuracy"]) for seed, run in runs.items()}


def _floor(task: str) -> float:
    """The accuracy of the most common class, which a dead run has."""
    return COMMON_SHARE.get(TASKS[task].data, 0.1)


def _cell(key: tuple[Any, ...], runs: dict[int, dict[str, Any]], base: dict[int, dict[str, Any]]) -> Cell:
    """Means over the runs of an arm, and "base": those of cross-entropy over the same seeds, so that draws cancel."""
    floor = _floor(key[0])
    common = [run for seed, run in base.items() if seed in runs]
    same = {"base": {name: _means(common, floor)[name] for name in ("accuracy", "distance", "attacked")}}
    return {**dict(zip((*KEYS, "arm"), key)), **_means(list(runs.values()), floor), **(same if common else {})}


def _means(runs: list[dict[str, Any]], floor: float) -> dict[str, Any]:
    alive = [run for run in runs if not run["dead"]]
    accuracies = [floor if run["dead"] else run["accuracy"] for run in runs]
    return {
        "seeds": len(runs),
        "accuracy": _mean(accuracies),
        "deviation": round(statistics.stdev(accuracies), 5) if len(runs) > 1 else None,
        "training accuracy": _mean(run["training accuracy"] for run in alive),
        "distance": _mean(run["distance"] for run in alive if run["distance"] is not None),
        "attacked": [_mean(column) for column in zip(*(run["attacked"] for run in alive))],
        "not finite": len(runs) - len(alive),
        "stuck": sum(not run["dead"] and run["accuracy"] <= floor + STUCK for run in runs),
    }


def _row(arm: str, settings: Sequence[dict[str, Cell]]) -> dict[str, Any]:
    gains = [_gain(group[arm]) for group in settings]
    few, flips = ([g for g, s in zip(gains, settings) if _is_flipped(s[BASE]) == is_so] for is_so in (False, True))
    ratios = [
        group[arm]["distance"] / group[arm]["base"]["distance"]
        for group in settings
        if (group[arm]["base"]["distance"] or 0) > 0 and group[arm]["distance"] is not None
    ]
    attacked = [_attacked(group[arm], group[arm]["base"]) for group in settings if group[arm]["attacked"]]
    named = ((gain, {key: group[BASE][key] for key in KEYS}) for gain, group in zip(gains, settings))
    worst = sorted(named, key=lambda pair: pair[0])[:8]
    return {
        "settings": len(settings),
        "within 1 point": _mean(float(gain >= -WITHIN) for gain in gains),
        "gain": _mean(gains),
        "gain, few samples": _mean(few),
        "gain, flips": _mean(flips),
        "largest loss": min(gains, default=None),
        "distance ratio": statistics.median(ratios) if ratios else None,
        "attacked, points": _mean(attacked),
        "accuracy": _mean(100 * group[arm]["accuracy"] for group in settings),
        "not finite": sum(group[arm]["not finite"] for group in settings),
        "stuck": sum(group[arm]["stuck"] for group in settings),
        "worst": [{"gain": gain, "setting": " ".join(map(str, name.values()))} for gain, name in worst],
    }


def _gain(cell: Cell) -> float:
    return 100 * float(cell["accuracy"] - cell["base"]["accuracy"])


def _is_met(threshold: float, value: float | None) -> bool:
    return value is not None and (value <= threshold if threshold == 0 else value >= threshold)


def _attacked(cell: Cell, base: Cell) -> float:
    """Points of accuracy under attack above cross-entropy's, at the radius that halves cross-entropy's accuracy."""
    radius = half_radius(base["attacked"])
    return 100 * (at_radius(cell["attacked"], radius) - at_radius(base["attacked"], radius))


def _is_flipped(cell: Cell) -> bool:
    return TASKS[cell["task"]].flips > 0


def _has(arm: str, settings: Sequence[dict[str, Cell]]) -> bool:
    return any(_is_paired(arm, group) for group in settings)


def _is_paired(arm: str, group: dict[str, Cell]) -> bool:
    return arm in group and "base" in group[arm]


def _by_setting(table: Iterable[Cell]) -> dict[tuple[Any, ...], dict[str, Cell]]:
    groups: dict[tuple[Any, ...], dict[str, Cell]] = defaultdict(dict)
    for cell in table:
        groups[tuple(cell[key] for key in KEYS)][cell["arm"]] = cell
    return groups


def _where(table: Iterable[Cell], key: str, value: str) -> list[Cell]:
    return [cell for cell in table if cell[key] == value]


def _present(table: Iterable[Cell], names: Iterable[str]) -> list[str]:
    seen = {cell[key] for cell in table for key in ("task", "network")}
    return [name for name in names if name in seen]


def _settings(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    steps = {line["task"]: line["steps"] for line in lines}
    seeds = sorted({run["seed"] for line in lines for run in line["runs"]})
    tasks = {name: {"train": TASKS[name].train, "flips": TASKS[name].flips, "steps": steps[name]} for name in steps}
    return {
        **{"tasks": tasks, "seeds": seeds, "batch": BATCH, "schedule": "cosine"},
        **{"radii, parts of √D": RADII, "PGD steps": STEPS, "attacked samples": ATTACKED, "measured samples": MEASURED},
        **{"counts where cross-entropy is above the most common class by": TRAINS, "arms": {k: _arm(k) for k in ARMS}},
    }


def _arm(name: str) -> str:
    arm = ARMS[name]
    decay = ["weight decay 5e-4 (SGD), 0.01 (AdamW)"] if arm.decays else []
    if name == MMA:
        return f"max-margin adversarial training, d_max {D_MAX}·√D"
    return " + ".join([repr(arm.loss), *map(repr, arm.regularizers), *decay])


def _provenance(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """That of most jobs, and all commits where there are several."""
    most: dict[str, Any] = {}
    for key in ("commit", "versions", "hardware"):
        counted = Counter(repr(line.get(key)) for line in lines)
        most[key] = next(line.get(key) for line in lines if repr(line.get(key)) == counted.most_common(1)[0][0])
    commits = sorted({str(line.get("commit")) for line in lines})
    return most | ({"commits": commits} if len(commits) > 1 else {})


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 5) if listed else None


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "–" if value is None else str(value)
