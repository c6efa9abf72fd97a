"""A result that is not as `schema` says is refused in one sentence, before anything is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from widemargin.report.schema import Result

DATA_URI = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+={0,2}")


def check(result: Any) -> Result:
    """`result`, if it is one: a `ValueError` names the first entry that is missing, unknown or not as expected."""
    _check(result, "result", _RESULT)
    if not result["arms"]:
        raise ValueError("result.arms is empty, expected at least one arm")
    for key in ("name", "label"):
        seen: set[str] = set()
        for i, arm in enumerate(result["arms"]):
            shown = arm.get(key, arm["name"])
            if shown in seen:
                raise ValueError(
                    f"result.arms[{i}].{key} is {shown!r} a second time, expected another one for each arm"
                )
            seen.add(shown)
    return cast(Result, result)


Test = Callable[[Any, str], None]


def _fail(value: Any, path: str, expected: str) -> None:
    said = repr(value) if len(repr(value)) < 60 else f"a {type(value).__name__}"
    raise ValueError(f"{path} is {said}, expected {expected}")


def _text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        _fail(value, path, "a string")


def _number(
    least: float | int = -math.inf, most: float | int = math.inf, *, none: bool = False, whole: bool = False
) -> Test:
    expected = "a whole number" if whole else "a number"
    if math.isfinite(least):
        expected += f" in [{least:g}, {most:g}]" if math.isfinite(most) else f" ≥ {least:g}"

    def test(value: Any, path: str) -> None:
        if value is None and none:
            return
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            _fail(value, path, expected + (" or null" if none else ""))
        if not math.isfinite(value) or not least <= value <= most:
            _fail(value, path, expected + (" or null" if none else ""))

    return test


def _all(test: Test) -> Test:
    def each(value: Any, path: str) -> None:
        if not isinstance(value, list):
            _fail(value, path, "a list")
        for i, item in enumerate(value):
            test(item, f"{path}[{i}]")

    return each


def _named(test: Test) -> Test:
    def each(value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            _fail(value, path, "an object")
        for key, item in value.items():
            _text(key, f"a key of {path}")
            test(item, f"{path}.{key}")

    return each


def _entry(required: dict[str, Test], optional: dict[str, Test] | None = None) -> Test:
    known = required | (optional or {})

    def test(value: Any, path: str) -> None:
        _check(value, path, (required, known))

    return test


def _check(value: Any, path: str, keys: tuple[dict[str, Test], dict[str, Test]]) -> None:
    required, known = keys
    if not isinstance(value, Mapping):
        _fail(value, path, f"an object with {', '.join(required) or 'any of ' + ', '.join(known)}")
    for key in required:
        if key not in value:
            raise ValueError(f"{path} has no {key!r}, expected {', '.join(required)}")
    for key, item in value.items():
        if key not in known:
            raise ValueError(f"{path} has {key!r}, which the report does not know, expected one of {', '.join(known)}")
        known[key](item, f"{path}.{key}")


def _any(value: Any, path: str) -> None:
    pass


def _label(value: Any, path: str) -> None:
    if not isinstance(value, str):
        _number(whole=True)(value, path)


def _margins(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
        _DENSITY(value, path)
        if len(value["grid"]) != len(value["density"]):
            _fail(len(value["density"]), f"the length of {path}.density", f"that of grid, {len(value['grid'])}")
        return
    if not isinstance(value, list):
        _fail(value, path, "a list of numbers, one per sample")
    for i, item in enumerate(value):  # there may be a million of them
        if item is not None and not (type(item) in (float, int) and math.isfinite(item)):
            _fail(item, f"{path}[{i}]", "a number or null")


def _bracket(value: Any, path: str) -> None:
    _BRACKET(value, path)
    count = len(value["lower"])
    for key in ("upper", "linearized"):
        if len(value[key]) != count:
            _fail(len(value[key]), f"the length of {path}.{key}", f"that of lower, {count}")
    for i, (low, high) in enumerate(zip(value["lower"], value["upper"], strict=True)):
        if high is not None and low > high:
            _fail(low, f"{path}.lower[{i}]", f"at most upper[{i}], {high}")


def _row(value: Any, path: str) -> None:
    if not isinstance(value, Mapping) or not {"epoch", "split"} <= value.keys():
        _fail(value, path, "an object with epoch, split and numbers")
    for key, item in value.items():
        if key != "split":
            _IN_ROW.get(key, _maybe)(item, f"{path}.{key}")
        elif item not in ("train", "validation"):
            _fail(item, f"{path}.split", "'train' or 'validation'")


def _image(value: Any, path: str) -> None:
    if isinstance(value, str) and not DATA_URI.fullmatch(value):
        raise ValueError(f"{path} is a string, expected 'data:image/png;base64,…' or rows of numbers in [0, 1]")


_share, _count, _maybe = _number(0, 1), _number(0, whole=True), _number(none=True)
_IN_ROW = {"epoch": _number(0), "accuracy": _number(0, 1, none=True)}
_DENSITY = _entry(
    {
        "grid": _all(_number()),
        "density": _all(_number(0)),
        "count": _count,
        "mean": _number(),
        "std": _number(0),
        "share_negative": _share,
    }
)
_HARD = _entry({"index": _count, "label": _label, "prediction": _label, "margin": _maybe}, {"image": _image})
_BRACKET = _entry(
    {
        "lower": _all(_number(0)),
        "upper": _all(_number(0, none=True)),
        "linearized": _all(_maybe),
        "band": _all(_entry({"epsilon": _number(0), "certified": _share, "attacked": _share})),
    }
)
_ARM = _entry(
    {"name": _text},
    {
        "label": _text,
        "note": _text,
        "samples": _count,
        "accuracy": _number(0, 1, none=True),
        "margins": _named(_margins),
        "curve": _all(_entry({"epsilon": _number(0), "accuracy": _share})),
        "bracket": _bracket,
        "sizes": _all(_entry({"samples": _number(1, whole=True), "accuracy": _share})),
        "history": _all(_row),
        "hardest": _all(_HARD),
        "seconds": _number(0),
    },
)
_ATTACK = _entry({}, {"name": _text, "norm": _text, "samples": _count, "shown": _all(_number(0))})
_RESULT: tuple[dict[str, Test], dict[str, Test]] = (
    {"title": _text, "arms": _all(_ARM)},
    {
        "title": _text,
        "arms": _all(_ARM),
        "subtitle": _text,
        "norm": _text,
        "attack": _ATTACK,
        "settings": _named(_any),
        "versions": _named(_any),
        "hardware": _named(_any),
    },
)
