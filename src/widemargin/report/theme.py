"""Colours and fonts of pages and charts, in light and dark mode.

The hues are those of Okabe and Ito. Their lightness is chosen for the page: the contrast with it is at least 3 : 1, and
the first six differ clearly under both common colour vision deficiencies (tests compute both).
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["light", "dark"]


def _mixed(color: str, page: str, part: float) -> str:
    pairs = ((int(color[i : i + 2], 16), int(page[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part * a + (1 - part) * b):02x}" for a, b in pairs)


PALETTE: dict[Mode, tuple[str, ...]] = {
    "light": ("#0759b6", "#be4829", "#008b68", "#953275", "#c2870d", "#2394be", "#5d6470", "#7b4b2a"),
    "dark": ("#4d93ec", "#d57b43", "#6ee7ab", "#ca639b", "#fac93b", "#89d4fe", "#a7adba", "#cf9f78"),
}
"""One colour per arm, in the order of the arms; the ninth arm has the first colour again."""

PAGE: dict[Mode, dict[str, str]] = {
    "light": {
        "page": "#f6f7f9", "surface": "#ffffff", "ink": "#1b1d22", "soft": "#5c6270", "line": "#e3e5ea",
        "accent": "#0759b6", "wrong": "#be4829", "best": "#eaf1fb",
        "shadow": "0 1px 2px rgb(20 24 40 / 5%), 0 6px 20px rgb(20 24 40 / 4%)",
    },
    "dark": {
        "page": "#121317", "surface": "#1a1c22", "ink": "#eceef3", "soft": "#a3a9b8", "line": "#33363f",
        "accent": "#7db4f5", "wrong": "#d57b43", "best": "#1d2a3d",
        "shadow": "none",
    },
}  # fmt: skip
"""Background, cards, text, secondary text, lines, links, misclassified samples, best cells and shadows of a page."""

FILLS: dict[Mode, tuple[str, ...]] = {
    mode: tuple(_mixed(color, PAGE[mode]["surface"], 0.2 if mode == "light" else 0.26) for color in PALETTE[mode])
    for mode in PALETTE
}
"""Pale versions of the same colours, for regions behind points and lines."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""One shape per arm in addition to its colour, for colour-blind readers and for print."""


def css_colors(mode: Mode) -> str:
    """All colours as CSS variables: `--ink` and the others of `PAGE`, `--arm-0` and the others of `PALETTE`."""
    arms = {f"arm-{i}": color for i, color in enumerate(PALETTE[mode])}
    return " ".join(f"--{name}: {color};" for name, color in (PAGE[mode] | arms).items())


def config(mode: Mode, *, legend: bool) -> dict[str, object]:
    """The Vega-Lite `config` of a chart. `legend`: inside the chart, as an exported chart needs it."""
    page = PAGE[mode]
    soft = page["soft"]
    texts = {"labelFontSize": 12, "titleColor": soft, "titleFontSize": 12, "titleFontWeight": "normal"}
    axis = {"domain": False, "ticks": False, "grid": True, "gridColor": page["line"], "labelColor": soft}
    spaces = {"labelPadding": 8, "labelOverlap": "greedy", "labelSeparation": 12, "titlePadding": 10}
    symbols = {"symbolStrokeWidth": 2.5, "symbolOpacity": 1, "symbolType": "circle"}
    # Colours of shapes and dashes, which have none of their own.
    symbols |= {"symbolBaseFillColor": soft, "symbolBaseStrokeColor": soft}
    subtitle = {"subtitleColor": soft, "subtitleFontSize": 12, "subtitlePadding": 6}
    return {
        "background": "transparent" if not legend else page["surface"],
        "font": FONT,
        "view": {"stroke": None},
        "range": {"category": list(PALETTE[mode]), "ordinal": list(FILLS[mode])},
        "axis": {**axis, **spaces, **texts},
        "axisX": {"grid": False, "domain": True, "domainColor": page["line"]},
        "axisY": {"titleAnchor": "end", "titleAngle": 0, "titleAlign": "left", "titleX": 0, "titleY": -12},
        "legend": {
            "disable": not legend,
            "orient": "top",
            "layout": {"direction": "vertical", "margin": 12},  # legends below each other
            "labelColor": page["ink"],
            "labelLimit": 220,
            "columns": 3,
            "columnPadding": 28,
            "offset": 34,
            **symbols,
            **texts,
        },
        "title": {"color": page["ink"], "fontSize": 15, "fontWeight": 600, "anchor": "start", "offset": 12, **subtitle},
        "line": {"strokeWidth": 2.25, "strokeCap": "round"},
        "style": _styles(mode),
    }


def _styles(mode: Mode) -> dict[str, object]:
    """Looks of single marks, by the names that the charts use."""
    page = PAGE[mode]
    return {
        "boundary": {"color": page["soft"], "strokeWidth": 1, "opacity": 0.9},
        "aside": {"color": page["soft"], "fontSize": 11},
        "wrong": {"color": page["wrong"], "opacity": 0.05},
        "piece": {"stroke": page["soft"]},
        "edge": {"color": page["ink"]},
        "ellipse": {"color": PALETTE[mode][3]},
        "curve": {"color": page["ink"]},
        "sample": {"stroke": page["surface"]},
    }
