"""One HTML file for a result, that asks nothing of any server: charts, tables, images and settings are inside."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from widemargin import __version__
from widemargin._io.files import write_whole
from widemargin._io.optional import import_optional
from widemargin.report import png, tables
from widemargin.report.check import check
from widemargin.report.figures import vega_lite_version
from widemargin.report.headline import headline
from widemargin.report.names import label_of, number
from widemargin.report.schema import Arm, Result
from widemargin.report.sections import Section, sections
from widemargin.report.theme import PALETTE, config


def write(path: str | os.PathLike[str], result: Mapping[str, Any]) -> Path:
    """Write the page of `result` (see `schema`) to `path`, whole or not at all; open it with any browser."""
    text = render(result)
    return write_whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))


def render(result: Mapping[str, Any]) -> str:
    """The page of `result` (see `schema`) as HTML.

    What comes from `result` is text everywhere: escaped in HTML by the template engine, in the JSON of the charts by
    `_json`. Should either fail, the page's policy lets no script run but the two whose hashes it names, and no request
    leave the browser.
    """
    checked = check(result)
    return assemble(
        checked,
        sections(checked),
        _facts(checked),
        legend=False,
        headline=headline(checked),
        overview=tables.overview(checked),
        notes=tables.notes(checked),
        arms=[{"label": label_of(arm), "color": _color(i)} for i, arm in enumerate(checked["arms"])],
        galleries=[_gallery(i, arm) for i, arm in enumerate(checked["arms"]) if arm.get("hardest")],
    )


def assemble(
    result: Mapping[str, Any],
    parts: list[Section],
    facts: list[tuple[str, list[tuple[str, str]]]],
    *,
    legend: bool,
    headline: Any = (),
    overview: tables.Table = tables.NONE,
    notes: Any = (),
    arms: Any = (),
    galleries: Any = (),
) -> str:
    """A page of the title and subtitle of `result`, of `parts` and of what else there is; `legend`: inside charts."""
    jinja2 = import_optional("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    library, script = _bundle(), _template("page.js")
    page: str = environment.get_template("page.html").render(
        result=result,
        policy=_policy(library, script),
        style=_template("page.css"),
        palettes=PALETTE,
        library=library,
        script=script,
        charts=_json(_charts(parts, legend)),
        headline=headline,
        overview=overview,
        notes=notes,
        sections=parts,
        arms=arms,
        galleries=galleries,
        facts=facts,
        version=__version__,
    )
    return page


def _charts(parts: list[Section], legend: bool) -> dict[str, Any]:
    """What the page's script needs to draw: both configurations, and each specification as wide as its card."""
    cards = [card for part in parts for card in part.cards]
    return {
        "config": {mode: config(mode, legend=legend) | {"background": "transparent"} for mode in PALETTE},
        "saved": {mode: config(mode, legend=True) for mode in PALETTE},
        "specs": {card.id: card.spec for card in cards},
    }


def _gallery(position: int, arm: Arm) -> dict[str, Any]:
    items = []
    for hard in arm["hardest"]:
        image = hard.get("image")
        items.append(
            {
                "source": image if image is None or isinstance(image, str) else png.data_uri(image),
                "index": hard["index"],
                "label": str(hard["label"]),
                "prediction": str(hard["prediction"]),
                "right": str(hard["label"]) == str(hard["prediction"]),
                "margin": number(hard["margin"]),
            }
        )
    return {"label": label_of(arm), "color": _color(position), "items": items}


def _color(position: int) -> int:
    return position % len(PALETTE["light"])


def _facts(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    notes = {label_of(arm): arm["note"] for arm in result["arms"] if arm.get("note")}
    return facts(result, Networks=notes)


def facts(result: Mapping[str, Any], **more: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings, versions and hardware of `result` as text, by the headings of the page's last section."""
    groups = [
        ("Settings", result.get("settings", {})),
        *more.items(),
        ("Versions", result.get("versions", {})),
        ("Hardware", result.get("hardware", {})),
    ]
    return [(name, [(key, _plain(value)) for key, value in found.items()]) for name, found in groups if found]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _json(value: Any) -> str:
    """JSON that is safe inside a `<script>`: no sequence in it can end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(*scripts: str) -> str:
    """The Content-Security-Policy: nothing is fetched, and these scripts alone run."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    library: str = import_optional("vl_convert").javascript_bundle(vl_version=vega_lite_version())
    if "</script" in library.lower():
        raise RuntimeError("the chart library contains </script, which would end its element in the page")
    return library


def _template(name: str) -> str:
    return resources.files("widemargin.report").joinpath("templates", name).read_text(encoding="utf-8")
