"""The page of a picture: its panels with captions, which can be moved and scaled, in one HTML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from widemargin.report import html, tables
from widemargin.report.check import check_picture
from widemargin.report.page import assemble, facts
from widemargin.report.planes import chart
from widemargin.report.schema import Json, Panel
from widemargin.report.sections import Card, Section

HINT = "Drag to move a picture, scale it with Ctrl and the wheel, double-click to reset it."


def write(path: str | os.PathLike[str], picture: Mapping[str, Json]) -> Path:
    """Write the page of `picture` (see `schema`) to `path`, completely or not at all."""
    return html.write(path, render(picture))


def render(picture: Mapping[str, Json]) -> str:
    """The page of `picture` as HTML, with all values escaped as in `page.render`."""
    checked = check_picture(picture)
    alone = len(checked["panels"]) == 1
    cards = [_card(i, panel, 640 if alone else 440) for i, panel in enumerate(checked["panels"])]
    section = Section(id="plane", title="The plane" if alone else "The planes", text=HINT, cards=cards)
    return assemble(checked, [section], facts(checked), legend=True)


def _card(position: int, panel: Panel, width: int) -> Card:
    spec = chart(panel, width=width).to_dict()
    spec.pop("config", None)  # the page has its own
    spec["description"] = f"{panel['title']}. {panel['text']}"
    return Card(
        id=f"chart-plane-{position}",
        title=panel["title"],
        description=panel["title"],
        spec=spec,
        table=tables.NONE,
        wide=width > 440,
        text=panel["text"],
    )
