"""Draw docs/pictures/grid-*.svg from results/grid.json, and write its tables into docs/methods/grid.md.

python benchmarks/grid.py summary && python benchmarks/grid_picture.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair as alt

from default_grid.arms import ARMS, BASE, DEFAULT
from default_grid.summary import counts
from widemargin.report.figures import save

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/methods/grid.md"
NAMES = {
    BASE: "cross-entropy",
    DEFAULT: "`WideMargin()`",
    "wide margin, generalized": "`WideMargin(base=GeneralizedCrossEntropy())`",
    "wide margin, share 1/8": "`WideMargin(share=1/8)`",
    "jacobian": "Jacobian regularizer 0.03",
    "weight decay": "weight decay",
    "label smoothing": "label smoothing 0.1",
    "generalized cross-entropy": "generalized cross-entropy",
    "odn": "`odn()`",
    "large margin": "`large_margin()`",
    "mma": "MMA",
}
NETWORKS = {"mlp": "MLP", "cnn": "CNN", "resnet-gn": "ResNet, GN", "resnet-bn": "ResNet, BN", "vit": "ViT"}
TASKS = {
    "digits": "digits, 600",
    "mnist-500": "MNIST, 500",
    "mnist-2000-flips": "MNIST, 2,000, flips",
    "fashion-500": "Fashion-MNIST, 500",
    "fashion-2000-flips": "Fashion-MNIST, 2,000, flips",
    "cifar10-1000": "CIFAR-10, 1,000",
    "cifar10-3000-flips": "CIFAR-10, 3,000, flips",
    "cancer": "breast cancer, 200",
    "wine": "wine, 60",
    "iris": "iris, 45",
}
COLUMNS = [f"SGD {lr:g}" for lr in (0.01, 0.03, 0.1)] + [f"Adam {lr:g}" for lr in (3e-4, 1e-3, 3e-3)]
MEASURES = {
    "gain, few samples": "gain, ≤ 1,000 samples, points",
    "gain, flips": "gain, 40 % flips, points",
    "distance ratio": "distance, ratio",
    "attacked, points": "under attack, points",
}


def main() -> None:
    result = json.loads((ROOT / "results/grid.json").read_text())
    save(gains(result), ROOT / "docs/pictures/grid-gains.svg")
    save(arms(result), ROOT / "docs/pictures/grid-arms.svg")
    text = PAGE.read_text()
    blocks = {"goals": goal_table(result), "arms": arm_table(result), "networks": parts_table(result)}
    blocks["goals"] += ["", "![Points above cross-entropy in every setting](../pictures/grid-gains.svg)"]
    blocks["arms"] += ["", "![Gains, distances and attacks of all losses](../pictures/grid-arms.svg)"]
    for name, lines in blocks.items():
        block = "\n".join([f"<!-- {name} -->", "", *lines, "", f"<!-- end of {name} -->"])
        text, count = re.subn(rf"<!-- {name} -->.*?<!-- end of {name} -->", lambda _: block, text, flags=re.DOTALL)  # noqa: B023
        assert count == 1, name
    PAGE.write_text(text)


def gains(result: dict[str, Any]) -> alt.FacetChart:
    """Points above cross-entropy in every setting, a square each; a dash where cross-entropy does not train."""
    cells = {tuple(c[k] for k in ("task", "network", "optimizer", "lr", "arm")): c for c in result["cells"]}
    rows = []
    for (task, network, optimizer, lr, arm), cell in cells.items():
        base = cells.get((task, network, optimizer, lr, BASE))
        if arm != DEFAULT or base is None:
            continue
        gain = 100 * (cell["accuracy"] - base["accuracy"]) if counts(base) else None
        setting = f"{optimizer.replace('sgd', 'SGD').replace('adam', 'Adam')} {lr:g}"
        names = {"task": TASKS[task], "network": NETWORKS[network], "setting": setting}
        rows.append({**names, "gain": gain, "text": "–" if gain is None else _number(gain)})
    axis = {"grid": False, "ticks": False, "domain": False}
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("setting:N", sort=COLUMNS, title=None, axis=alt.Axis(labelAngle=-50, labelOverlap=False, **axis)),
        y=alt.Y("network:N", sort=list(NETWORKS.values()), title=None, axis=alt.Axis(labelOverlap=False, **axis)),
    )
    scale = alt.Scale(domain=[-10, -1, 0, 5, 20], range=["#be4829", "#f0c9bd", "#f3f4f6", "#a9c8ee", "#0759b6"])
    squares = base.mark_rect(stroke="white").encode(
        color=alt.Color("gain:Q", title=["points above", "cross-entropy"], scale=scale)
    )
    is_dark = "datum.gain > 13 || datum.gain < -7"
    text = base.mark_text(fontSize=9).encode(
        text="text:N", color=alt.condition(is_dark, alt.value("white"), alt.value("#222"))
    )
    chart = alt.layer(squares, text).properties(width=190, height=alt.Step(19))
    facet = alt.Facet("task:N", sort=list(TASKS.values()), title=None)
    return chart.facet(facet=facet, columns=3).resolve_scale(y="independent")


def arms(result: dict[str, Any]) -> alt.FacetChart:
    """Mean gains, distances and accuracies under attack of every arm (bars), and the default's there (ticks)."""
    labels = {arm: NAMES[arm].replace("`", "") for arm in ARMS}
    default = result["all"][DEFAULT]
    pairs = {DEFAULT: {"arm": default, "default": default}, **result["beside the default"]}
    rows = [
        {
            **{"arm": labels[arm], "measure": title, "is own": not ARMS[arm].is_baseline},
            **{"value": pair["arm"][key], "default": pair["default"][key]},
        }
        for arm, pair in pairs.items()
        for key, title in MEASURES.items()
        if pair["arm"][key] is not None
    ]
    order = [labels[arm] for arm in ARMS]
    axis = alt.Axis(labelLimit=300, labelOverlap=False, ticks=False, domain=False)
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("arm:N", sort=order, title=None, axis=axis),
        x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=4)),
    )
    bars = base.mark_bar(height=11).encode(
        color=alt.condition("datum['is own']", alt.value("#0759b6"), alt.value("#9aa3b2"))
    )
    ticks = base.mark_tick(thickness=2, height=15, color="#222").encode(x="default:Q")
    facet = alt.Facet("measure:N", sort=list(MEASURES.values()), title=None)
    chart = alt.layer(bars, ticks).properties(width=230, height=alt.Step(18))
    return chart.facet(facet=facet, columns=2).resolve_scale(x="independent")


def goal_table(result: dict[str, Any]) -> list[str]:
    head = ["| `WideMargin()` | goal | measured | met |", "| --- | --- | --- | --- |"]
    rows = []
    for goal in result["goals"]:
        sign = "≤" if goal["threshold"] == 0 else "≥"
        least = f"{goal['threshold']:g}".replace("-", "−")
        values = f"{sign} {least} | {_number(goal['measured'], signed=False, digits=2)}"
        rows.append(f"| {goal['goal']} | {values} | {'yes' if goal['met'] else '**no**'} |")
    return [*head, *rows]


def arm_table(result: dict[str, Any]) -> list[str]:
    head = (
        *("settings", "within 1 point", "gain, ≤ 1,000 samples", "gain, flips", "largest loss"),
        *("distance", "under attack", "not finite", "at chance", "`WideMargin()` there"),
    )
    lines = [f"| | {' | '.join(head)} |", f"| --- |{' --- |' * len(head)}"]
    lines.append(f"| {NAMES[DEFAULT]} | {' | '.join(_columns(result['all'][DEFAULT]))} | |")
    for arm, pair in result["beside the default"].items():
        there = ", ".join(_number(pair["default"][key]) for key in ("gain, few samples", "gain, flips"))
        lines.append(f"| {NAMES[arm]} | {' | '.join(_columns(pair['arm']))} | {there} |")
    return lines


def parts_table(result: dict[str, Any]) -> list[str]:
    head = ("settings", "within 1 point", "gain, ≤ 1,000 samples", "gain, flips", "largest loss")
    head += ("distance", "under attack", "not finite", "at chance")
    lines = [f"| `WideMargin()` | {' | '.join(head)} |", f"| --- |{' --- |' * len(head)}"]
    parts = [(NETWORKS, result["by network"]), (TASKS, result["by task"])]
    for names, tables in parts:
        for key, table in tables.items():
            if DEFAULT in table:
                lines.append(f"| {names[key]} | {' | '.join(_columns(table[DEFAULT]))} |")
    return lines


def _columns(row: dict[str, Any]) -> list[str]:
    within = row["within 1 point"]
    return [
        str(row["settings"]),
        "–" if within is None else f"{100 * within:.0f} %",
        *(_number(row[key]) for key in ("gain, few samples", "gain, flips", "largest loss")),
        "–" if row["distance ratio"] is None else f"{row['distance ratio']:.2f}×",
        _number(row["attacked, points"]),
        *(str(row[key]) for key in ("not finite", "stuck")),
    ]


def _number(value: float | None, *, signed: bool = True, digits: int = 1) -> str:
    """With a minus sign instead of a hyphen."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}" if isinstance(value, float) else str(value)
    return text.replace("-", "−")


if __name__ == "__main__":
    main()
