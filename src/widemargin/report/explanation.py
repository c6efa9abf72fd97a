"""The page of explained decisions: samples, smallest changes, and distances between certificate and attack."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from widemargin.report import html
from widemargin.report.names import number
from widemargin.report.page import facts
from widemargin.report.schema import PNG, Json


class Pictured(TypedDict):
    """An image as a data URI, and its caption."""

    name: str
    image: str


class Explained(TypedDict):
    """One decision; `changes` have name, before, after and change, `scores` name, before and after.

    `position` is that of the sample in its data set.
    """

    position: int
    decision: str
    other: str | None
    sentences: list[str]
    pictures: list[Pictured]
    changes: list[dict[str, Json]]
    tokens: bool
    certified: float | None
    linearized: float | None
    distance: float | None
    scores: list[dict[str, Json]]


class ExplanationPage(TypedDict):
    """The values of a page."""

    title: str
    items: list[Explained]
    notes: list[str]
    settings: dict[str, Json]
    versions: dict[str, Json]
    hardware: dict[str, Json]


def write(path: str | os.PathLike[str], values: ExplanationPage) -> Path:
    """Write the page of `values` to `path`, completely or not at all."""
    return html.write(path, render(values))


def render(values: ExplanationPage) -> str:
    """The page of `values` as HTML; all of them are escaped by the template engine."""
    return html.render(
        "explanation.html",
        title=values["title"],
        items=[_item(item) for item in values["items"]],
        notes=values["notes"],
        facts=facts(values),
    )


def _item(item: Explained) -> dict[str, Json]:
    for picture in item["pictures"]:
        if not re.fullmatch(PNG.regex, picture["image"]):
            raise ValueError(f"image is {picture['image'][:40]!r}…, expected a PNG as a data URI")
    distances = [("certified", item["certified"]), ("linearised", item["linearized"]), ("found", item["distance"])]
    return {
        **item,
        "sentences": item["sentences"][1:],
        "answer": item["sentences"][0],
        "distances": [(name, number(value)) for name, value in distances],
        "changes": [_numbers(change) for change in item["changes"]],
        "scores": [_numbers(score) for score in item["scores"]],
    }


def _numbers(row: Mapping[str, Json]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else number(value) for key, value in row.items()}
