"""The page of a picture: its panels with captions, which can be moved and scaled, in one HTML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from widemargin.report import html, tables
from widemargin.report.check import check_picture
from widemargin.report.page import assemble, facts
from widemargin.report.planes import chart
from widemargin.report.schema import Json
from widemargin.report.sections import Card, Section

HINT = "Drag to move a picture, scale it with Ctrl and the wheel, double-click to reset it."


def write(path: str | os.PathLike[str], picture: Mapping[str, Json]) -> Path:
    """Write the page of `picture` (see `schema`) to `path`, completely or not at all."""
    return html.write(path, render(picture))


def render(picture: Mapping[str, Json]) -> str:
    """The page of `picture` as HTML, with all values escaped as in `page.render`."""
    checked = check_picture(picture)
    alone = len(checked["panels"]) == 1
    cards = []
    for i, panel in enumerate(checked["panels"]):
        title, text = panel["title"], panel["text"]
        spec = chart(panel, width=640 if alone else 440).to_dict() | {"description": f"{title}. {text}"}
        spec.pop("config", None)  # the page has its own
        words = {"id": f"chart-plane-{i}", "title": title, "description": title, "text": text}
        cards.append(Card(**words, spec=spec, table=tables.NONE, wide=alone))
    section = Section(id="plane", title="The plane" if alone else "The planes", text=HINT, cards=cards)
    return assemble(checked, [section], facts(checked), legend=True)
