"""The page of a picture: its panels, each with its caption, to be moved and scaled, in one file that asks no server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widemargin._io.files import write_whole
from widemargin.report import tables
from widemargin.report.page import assemble, facts
from widemargin.report.picture_schema import Panel, check_picture
from widemargin.report.planes import chart
from widemargin.report.sections import Card, Section

HINT = "Drag to move a picture, Ctrl and the wheel scale it, a double click brings it back."


def write(path: str | os.PathLike[str], picture: Mapping[str, Any]) -> Path:
    """Write the page of `picture` (see `picture_schema`) to `path`, whole or not at all."""
    text = render(picture)
    return write_whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))


def render(picture: Mapping[str, Any]) -> str:
    """The page of `picture` as HTML; names of others are text in it everywhere, as in `page.render`."""
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
