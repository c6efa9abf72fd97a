"""The page of a result: one HTML file that loads nothing from any server, with charts, tables, images and settings."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path

from widemargin._io.optional import import_optional
from widemargin.report import html, png, tables
from widemargin.report.check import check
from widemargin.report.figures import vega_lite_version
from widemargin.report.headline import headline
from widemargin.report.names import label_of, number
from widemargin.report.schema import ArmResult, Json
from widemargin.report.sections import Section, sections
from widemargin.report.theme import PALETTE, config

Facts = list[tuple[str, list[tuple[str, str]]]]
"""Headings, each with its keys and values as text."""


def write(path: str | os.PathLike[str], result: Mapping[str, Json]) -> Path:
    """Write the page of `result` (see `schema`) to `path`, completely or not at all."""
    return html.write(path, render(result))


def render(result: Mapping[str, Json]) -> str:
    """The page of `result` (see `schema`) as HTML.

    Values of `result` are escaped everywhere: in HTML by the template engine, in the JSON of the charts by `_json`.
    Should either fail, the page's policy allows only the two scripts whose hashes it names, and no requests.
    """
    checked = check(result)
    notes = {label_of(arm): arm["note"] for arm in checked["arms"] if arm.get("note")}
    return assemble(
        checked,
        sections(checked),
        facts(checked, Networks=notes),
        legend=False,
        headline=headline(checked),
        overview=tables.overview(checked),
        notes=tables.notes(checked),
        arms=[{"label": label_of(arm), "color": _color(i)} for i, arm in enumerate(checked["arms"])],
        galleries=[_gallery(i, arm) for i, arm in enumerate(checked["arms"]) if arm.get("hardest")],
    )


def assemble(result: Mapping[str, Json], parts: list[Section], facts: Facts, *, legend: bool, **more: object) -> str:
    """The page with the title and subtitle of `result`; `legend`: inside the charts, not above them.

    `more`: the headline, overview, notes, arms and galleries of the template; by default none.
    """
    library, script = _bundle(), html.template("page.js")
    values = {"headline": (), "overview": tables.NONE, "notes": (), "arms": (), "galleries": ()} | more
    values |= {"result": result, "sections": parts, "facts": facts, "charts": _json(_charts(parts, legend))}
    return html.render("page.html", scripts=(library, script), library=library, script=script, **values)


def facts(result: Mapping[str, Json], **more: Mapping[str, Json]) -> Facts:
    """Settings, versions and hardware of `result` as text, by the headings of the page's last section."""
    groups = [
        ("Settings", result.get("settings", {})),
        *more.items(),
        ("Versions", result.get("versions", {})),
        ("Hardware", result.get("hardware", {})),
    ]
    return [(name, [(key, _plain(value)) for key, value in found.items()]) for name, found in groups if found]


def _charts(parts: list[Section], legend: bool) -> dict[str, Json]:
    """Values that the page's script draws: both configurations, and each specification, as wide as its card."""
    cards = [card for part in parts for card in part.cards]
    return {
        "config": {mode: config(mode, legend=legend) | {"background": "transparent"} for mode in PALETTE},
        "saved": {mode: config(mode, legend=True) for mode in PALETTE},
        "specs": {card.id: card.spec for card in cards},
    }


def _gallery(position: int, arm: ArmResult) -> dict[str, Json]:
    items = []
    for hard in arm["hardest"]:
        image, label, prediction = hard.get("image"), str(hard["label"]), str(hard["prediction"])
        source = image if image is None or isinstance(image, str) else png.data_uri(image)
        shown = {"source": source, "label": label, "prediction": prediction, "right": label == prediction}
        items.append({**shown, "index": hard["index"], "margin": number(hard["margin"])})
    return {"label": label_of(arm), "color": _color(position), "items": items}


def _color(position: int) -> int:
    return position % len(PALETTE["light"])


def _plain(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _json(value: Json) -> str:
    """JSON that is safe inside a `<script>`: no sequence in it can end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    library: str = import_optional("vl_convert").javascript_bundle(vl_version=vega_lite_version())
    if "</script" in library.lower():
        raise RuntimeError("the chart library contains </script, which would end its element in the page")
    return library
