"""Sections of a page: the charts that a result has data for."""

from __future__ import annotations

from dataclasses import dataclass

from widemargin.report import alt, brackets, figures, tables
from widemargin.report.names import label_of, number, place_name, sentence, share
from widemargin.report.schema import Json, Result
from widemargin.report.statistics import has_seeds, places, statistics


@dataclass(frozen=True, kw_only=True)
class Card:
    """One chart: its id in the page, title, description in words, specification, table of numbers and caption."""

    id: str
    title: str
    description: str
    spec: dict[str, Json]
    table: tables.TextTable
    wide: bool
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, an explanation and charts; a section without charts is shown if `alone`."""

    id: str
    title: str
    text: str
    cards: list[Card]
    alone: bool = False


def sections(result: Result) -> list[Section]:
    """The sections of `result`, in the order of the page, without empty ones."""
    parts = (_margins, _attack, _bracket, _training, _sizes)
    return [section for part in parts if (section := part(result)).cards or section.alone]


def _margins(result: Result) -> Section:
    cards = []
    for i, place in enumerate(places(result["arms"])):
        arms = [arm for arm in result["arms"] if place in arm.get("margins", {})]
        means = [f"{label_of(arm)} {number(statistics(arm['margins'][place]).mean)}" for arm in arms]
        chart, table = figures.margins(result, place), tables.of_margins(result, place)
        summary = f"Densities of the distance to the boundary {place_name(place)}. Means: {', '.join(means)}."
        cards.append(_card(f"margins-{i}", place_name(place), summary, chart, table, wide=i == 0))
    text = (
        "Distribution of the distances of the samples to the decision boundary. Misclassified samples lie left of "
        "zero; a dashed line marks each mean."
    )
    return Section(id="margins", title="Margins", text=text, cards=cards)


def _attack(result: Result) -> Section:
    attack = result.get("attack", {})
    curves = [(label_of(arm), arm["curve"]) for arm in result["arms"] if arm.get("curve")]
    ends = [f"{name} from {share(c[0]['accuracy'])} to {share(c[-1]['accuracy'])}" for name, c in curves]
    summary = f"Accuracy over ε. {'; '.join(ends)}."
    chart, table = figures.under_attack(result), tables.of_attack(result)
    samples = f", on {attack['samples']:,} samples" if "samples" in attack else ""
    text = f"Accuracy when {attack.get('name', 'the attack')} moves each input by up to ε against the network{samples}."
    text += " Bands: one standard deviation over the seeds." if curves and has_seeds(result["arms"]) else ""
    cards = [_card("attack", "accuracy over ε", summary, chart, table)] if curves else []
    return Section(id="attack", title="Under attack", text=text, cards=cards)


def _bracket(result: Result) -> Section:
    cards, title = [], "Distance to the boundary"
    bounded = [len(arm["bracket"]["lower"]) for arm in result["arms"] if "bracket" in arm]
    if bounded and not brackets.distance_rows(result):
        text = f"None of the {max(bounded)} samples is classified right, so there is no distance to bound."
        return Section(id="bracket", title=title, text=text, cards=[], alone=True)
    if bounded:
        counted = brackets.of_distances(result)
        ends = [f"{label}: {', '.join(cell.text for cell in cells)}" for label, cells in counted.rows]
        summary = f"Certified and attacked distance of each sample ({', '.join(counted.heads)}): {'; '.join(ends)}."
        cards.append(_card("bracket", "distance of each sample", summary, brackets.distances(result), counted))
        summary = "Accuracy over ε: the solid line is proved, the dashed line is what the attack left."
        chart, table = brackets.robust(result), brackets.of_band(result)
        cards.append(_card("robust", "robust accuracy, certified to attacked", summary, chart, table))
    text = (
        "The true distance of a sample from the decision boundary lies between a certificate and an attack. Each line "
        "is a sample that is classified right, its dot the linearised distance; a dashed line has no upper end. Below, "
        "accuracy when every input may move by ε: proved (solid) and left by the attack (dashed), the truth in between."
    )
    return Section(id="bracket", title=title, text=text, cards=cards)


def _training(result: Result) -> Section:
    rows = [row for arm in result["arms"] for row in arm.get("history", [])]
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(figures.DISTANCE_AT))
    seen = [name.removeprefix(figures.DISTANCE_AT) for name in names]
    wanted: list[tuple[figures.Quantity, str, str]] = [
        ("distance", place, f"mean distance {place_name(place)}") for place in seen
    ]
    wanted += [("accuracy", "", "accuracy"), ("loss", "", "loss")]
    cards: list[Card] = []
    for i, (quantity, place, title) in enumerate(wanted):
        values = figures.training_rows(result, quantity, place)
        # One point is no line, and different losses can't be compared.
        if len({row["epoch"] for row in values}) < 2 or (quantity == "loss" and len(result["arms"]) > 1):
            continue
        last = {(row["arm"], row["samples"]): row["value"] for row in values}
        written = share if quantity == "accuracy" else number
        ends = [f"{arm}, {samples}: {written(value)}" for (arm, samples), value in last.items()]
        summary = f"{sentence(title)} over the epochs. At the end: {'; '.join(ends)}."
        chart, table = figures.over_training(result, quantity, place), tables.of_training(result, quantity, place)
        cards.append(_card(f"training-{i}", title, summary, chart, table, wide=not cards))
    watched = figures.watched(result)
    text = f"Values during training. Solid lines: {watched} samples; dashed lines: training samples."
    return Section(id="training", title="Over training", text=text, cards=cards)


def _sizes(result: Result) -> Section:
    chart, table = figures.over_data(result), tables.of_sizes(result)
    card = _card("sizes", "accuracy against data", "Accuracy over training samples.", chart, table)
    text = "Accuracy of networks trained on fewer or more samples."
    return Section(id="data", title="Against data", text=text, cards=[card] if table.rows else [])


def _card(
    id: str, title: str, summary: str, chart: alt.LayerChart, table: tables.TextTable, *, wide: bool = True
) -> Card:
    spec = chart.to_dict()
    for key in ("config", "title"):  # the page has its own configurations and headings
        spec.pop(key, None)
    spec |= {"width": "container", "height": 300 if wide else 220, "description": summary}
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return Card(id=f"chart-{id}", title=sentence(title), description=summary, spec=spec, table=table, wide=wide)
