"""The page of label issues: suspicious samples with their given and suggested labels, in one HTML file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from widemargin.report import html
from widemargin.report.names import number, share
from widemargin.report.page import facts
from widemargin.report.schema import PNG, Json


class Suspect(TypedDict):
    """A sample: an image as a data URI, or the values of a table, its labels, margin and P(label is wrong)."""

    index: int
    given: str
    suggested: str
    margin: float
    wrong: float
    image: str | None
    values: list[str]


class SuspectPair(TypedDict):
    """The number of suspects with this given and this suggested label."""

    given: str
    suggested: str
    count: int


LabelPage = TypedDict(
    "LabelPage",
    {
        "title": str,
        "samples": int,
        "suspects": int,
        "expected precision": list[float] | None,
        "expected share": list[float],
        "items": list[Suspect],
        "columns": list[str],
        "hidden columns": int,
        "pairs": list[SuspectPair],
        "precision": list[dict[str, Json]],
        "settings": NotRequired[dict[str, Json]],
        "versions": NotRequired[dict[str, Json]],
        "hardware": NotRequired[dict[str, Json]],
    },
)


def write(path: str | os.PathLike[str], values: LabelPage) -> Path:
    """Write the page of `values` to `path`, completely or not at all."""
    return html.write(path, render(values))


def render(values: LabelPage) -> str:
    """The page of `values` as HTML; all of them are escaped by the template engine."""
    items = [
        {**item, "margin": number(item["margin"]), "wrong": share(item["wrong"]), "image": _checked(item["image"])}
        for item in values["items"]
    ]
    precision = [(f"{row['count']:,}", [share(value) for value in row["precision"]]) for row in values["precision"]]
    return html.render(
        "label_issues.html",
        title=values["title"],
        headline=headline(values),
        items=items,
        suspects=values["suspects"],
        columns=values["columns"],
        hidden=values["hidden columns"],
        pairs=values["pairs"],
        precision=precision,
        facts=facts(values),
    )


def headline(values: LabelPage) -> list[str]:
    """What was found, in sentences."""
    samples, suspects, precision = values["samples"], values["suspects"], values["expected precision"]
    if not suspects or precision is None:
        return [f"None of the {samples:,} labels is a suspect.", "The labels closest to being one are below."]
    return [
        f"{suspects:,} of {samples:,} labels are suspects ({share(suspects / samples)}): another class is likely.",
        f"{_span(precision)} of them are expected to be wrong, and {_span(values['expected share'])} of all labels.",
    ]


def _span(estimates: Sequence[float]) -> str:
    return " to ".join(share(value) for value in estimates)


def _checked(image: str | None) -> str | None:
    if image is not None and not re.fullmatch(PNG.regex, image):
        raise ValueError(f"image is {image[:40]!r}…, expected a PNG as a data URI")
    return image
