"""Text forms of arms, places and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from widemargin.report.schema import ArmResult, Json


def label_of(arm: ArmResult) -> str:
    """The label of an arm, by default its name."""
    return arm.get("label", arm["name"])


def class_label(value: int | float, names: Sequence[str]) -> str:
    """The number of a label, and the name of its class where that differs.

    The labels −1 and 1 of a binary network have the names 0 and 1.
    """
    index = 0 if value == -1 and len(names) == 2 else int(value)
    if value != int(value) or not 0 <= index < len(names):
        return f"{value:g}"
    return str(index) if names[index] == str(index) else f"{value:g} {names[index]}"


def norm_label(p: float) -> str:
    """The name of a norm: l_2."""
    return "l_inf" if math.isinf(p) else f"l_{p:g}"


def place_name(place: str) -> str:
    """A place in words: "at the input", "at conv1"."""
    return f"at the {place}" if place in ("input", "output") else f"at {place}"


def norm_name(norm: str) -> str:
    """A norm as it is printed: "l_2" is l₂, "l_inf" is l∞."""
    return {"l_1": "l₁", "l_2": "l₂", "l_inf": "l∞"}.get(norm, norm)


def with_norm(text: str, norm: str) -> str:
    """`text` with the norm in parentheses, if there is one."""
    return f"{text} ({norm})" if norm else text


def number(value: float | int | None) -> str:
    """Three digits; a dash where there is no number."""
    if value is None or math.isnan(value):
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}").replace("-", "−")


def share(value: float | int | None) -> str:
    """A share in percent, with a digit after the point; a dash where there is no number."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def plus_minus(mean: float | int, std: float | int) -> str:
    """A mean and its standard deviation with as many digits after the point, two where they suffice."""
    digits = 2 if 0.1 <= abs(mean) < 100 else len(number(mean).partition(".")[2])
    return number(mean) if math.isnan(mean) else f"{mean:.{digits}f} ± {std:.{digits}f}".replace("-", "−")


def with_spread(mean: float | int, spread: float | int) -> str:
    """A mean and its spread with two digits of the spread: 99.23 ± 0.042."""
    if spread == 0 or not math.isfinite(spread):
        return f"{mean:.4g} ± {spread:g}".replace("-", "−")
    digits = 1 - math.floor(math.log10(float(f"{abs(spread):.1e}")))
    if digits > 6 or digits < -3:
        return f"{mean:.3g} ± {spread:.1e}".replace("-", "−")
    return f"{mean:,.{max(0, digits)}f} ± {spread:,.{max(0, digits)}f}".replace("-", "−")


def with_interval(mean: float | int, error: float, seeds: int) -> str:
    """A mean of some seeds ± half of its 95 % interval, from its standard error; two seeds have no interval."""
    if seeds < 3 or error == 0:
        said = f"{mean:.3g}".replace("-", "−")
        return said if error == 0 else f"{said} (two seeds)"
    return with_spread(mean, half_interval(error, seeds))


def half_interval(error: float, seeds: int) -> float:
    """Half of the 95 % interval of a mean, from its standard error; infinite for two seeds."""
    from scipy.special import stdtrit

    return math.inf if seeds < 3 else float(stdtrit(seeds - 1, 0.975)) * error


def share_plus_minus(mean: float | int, std: float | int) -> str:
    """A mean share in percent and its standard deviation, with a digit after the point."""
    return "–" if math.isnan(mean) else f"{100 * mean:.1f} ± {100 * std:.1f} %"


def sentence(text: str) -> str:
    """`text` with a capital letter."""
    return text[:1].upper() + text[1:]


_NOT_DRAWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff\u2028\u2029]")


def drawable(value: Json) -> Json:
    """Plain values in which every character of a text can be in an SVG; others end the process that draws it."""
    if isinstance(value, str):
        return _NOT_DRAWABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {drawable(key): drawable(inner) for key, inner in value.items()}
    return [drawable(inner) for inner in value] if isinstance(value, (list, tuple)) else value
