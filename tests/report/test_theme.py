from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from widemargin.report import html, theme
from widemargin.report.theme import PAGE, PALETTE, Mode

# Viénot, Brettel, Mollon 1999: how linear RGB looks to a dichromat (protan, deutan).
SEEN = {
    "everyone": np.eye(3),
    "protan": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "deutan": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}


def linear(color: str) -> np.ndarray:
    s = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(linear(color) @ (0.2126, 0.7152, 0.0722))


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(rgb, 0, 1) / (0.9505, 1.0, 1.089)
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_colour_stands_out_from_the_page(mode: Mode) -> None:
    page = PAGE[mode]["surface"]
    assert min(contrast(color, page) for color in PALETTE[mode]) >= 3  # WCAG 1.4.11, graphics
    assert contrast(PAGE[mode]["ink"], page) >= 7
    for text in ("soft", "accent", "wrong"):
        assert contrast(PAGE[mode][text], page) >= 4.5  # WCAG 1.4.3, text


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("seen_by", SEEN)
def test_the_colours_of_six_arms_differ_for_everyone(mode: Mode, seen_by: str) -> None:
    labs = [lab(SEEN[seen_by] @ linear(color)) for color in PALETTE[mode][:6]]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(labs, 2)) > 20  # ΔE of 2 is just seen


def test_templates_hold_no_colour_of_the_theme_a_second_time() -> None:
    folder = Path(theme.__file__).parent / "templates"
    texts = [path.read_text(encoding="utf-8").lower() for path in folder.iterdir()]
    for mode in PALETTE:
        for color in (*PALETTE[mode], *PAGE[mode].values()):
            assert not any(color[1:] in text for text in texts if color.startswith("#")), color
        assert f"--ink: {PAGE[mode]['ink']};" in html.render("scoreboard.html", boards=[], tally=[], total=0, claims="")
