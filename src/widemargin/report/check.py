"""Validation of results and pictures against the types of their schemas, before anything is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from widemargin.report.schema import PNG, Bracketed, Density, Json, Length, Limits, Moment, Picture, Result


class SchemaError(ValueError):
    """A value that does not fit its schema, and its path."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path} {problem}")
        self.problem, self.path = problem, path


def check(result: Json) -> Result:
    """Return `result`; raise a `ValueError` that names the first entry that does not fit `schema.Result`."""
    check_type(result, Result, "result")
    if not result["arms"]:
        raise SchemaError("is empty, expected at least one arm", "result.arms")
    for key in ("name", "label"):
        shown = [arm.get(key, arm["name"]) for arm in result["arms"]]
        for i, text in enumerate(shown):
            if text in shown[:i]:
                raise SchemaError(f"is {text!r} a second time, expected unique ones", f"result.arms[{i}].{key}")
    for i, arm in enumerate(result["arms"]):
        for j, row in enumerate(arm.get("history", [])):
            known = {key: row[key] for key in ("epoch", "split", "accuracy") if key in row}
            check_type(known, Moment, f"result.arms[{i}].history[{j}]")
    return cast(Result, result)


def check_type(value: Json, kind: object, name: str) -> None:
    """Raise a `ValueError` with the path, below `name`, of the first entry of `value` that does not fit `kind`."""
    with _below(name):
        _check(value, kind)


def check_picture(picture: Json) -> Picture:
    """Return `picture`; raise a `ValueError` that names the first entry that does not fit `Picture`."""
    check_type(picture, Picture, "picture")
    if not picture["panels"]:
        raise SchemaError("is empty, expected at least one panel", "picture.panels")
    for i, panel in enumerate(picture["panels"]):
        path = f"picture.panels[{i}]"
        left, right, bottom, top = panel["box"]
        if not (left < right and bottom < top):
            raise SchemaError(f"is {panel['box']}, expected [left, right, bottom, top]", f"{path}.box")
        labels = [(f"{path}.runs[{k}][4]", run[4]) for k, run in enumerate(panel.get("runs", []))]
        for name in ("parts", "points"):
            labels += [(f"{path}.{name}[{k}].label", entry["label"]) for k, entry in enumerate(panel.get(name, []))]
        classes = len(panel["classes"])
        for where, label in labels:
            if label not in range(classes):
                raise SchemaError(f"is {label!r}, expected an index of its {classes} classes", where)
    return cast(Picture, picture)


@contextmanager
def _below(path: str) -> Iterator[None]:
    """Prefix the paths of errors."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(error.problem, path + error.path) from None


def _check(value: Json, kind: Any, *marks: object) -> None:
    """Check `value` against the type `kind`; `marks` are the metadata of `Annotated`."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Annotated, NotRequired):
        _check(value, args[0], *args[1:], *marks)
    elif origin in (Union, UnionType):
        if value is not None or NoneType not in args:
            _check(value, next((one for one in args if _type(one) is type(value)), args[0]), *marks)
    elif is_typeddict(kind):
        _check_entries(value, kind)
    elif origin is list:
        _check_list(value, args[0], marks)
    elif origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise _invalid(value, "an object")
        if not _all_plain(value.values(), args[1]):
            for key, item in value.items():
                with _below(f".{key}"):
                    _check(item, args[1])
    elif kind in (int, float) and not _is_number(value, kind, marks):
        limits = "".join(f" {mark}" for mark in marks if isinstance(mark, Limits))
        raise _invalid(value, f"a {'whole ' if kind is int else ''}number{limits}")
    elif (origin is Literal and value not in args) or (kind in (str, bool) and not isinstance(value, kind)):
        raise _invalid(value, "a string" if kind is str else " or ".join(map(repr, args or (True, False))))
    elif PNG in marks and isinstance(value, str) and not re.fullmatch(PNG, value):
        raise SchemaError("is a string, expected 'data:image/png;base64,…' or rows of numbers in [0, 1]")


def _check_list(value: Json, kind: object, marks: tuple[object, ...]) -> None:
    length = next((mark.entries for mark in marks if isinstance(mark, Length)), None)
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise _invalid(value, "a list" if length is None else f"a list of {length} numbers")
    if not _all_plain(value, kind):
        for i, item in enumerate(value):
            with _below(f"[{i}]"):
                _check(item, kind)


def _check_entries(value: Json, kind: type) -> None:
    needed, hints = _hints(kind)
    if not isinstance(value, Mapping):
        raise _invalid(value, f"an object with {', '.join(needed or hints)}")
    for key in needed:
        if key not in value:
            raise SchemaError(f"has no {key!r}, expected {', '.join(needed)}")
    for key, item in value.items():
        if key not in hints:
            raise SchemaError(f"has the unknown key {key!r}, expected one of {', '.join(hints)}")
        with _below(f".{key}"):
            _check(item, hints[key])
    if kind in (Density, Bracketed):
        _check_columns(value)


def _check_columns(value: Mapping[str, list[Json]]) -> None:
    """Check that the columns of a density or a bracket have one length, and lower bounds are at most upper bounds."""
    first, *others = (key for key in ("grid", "density", "lower", "upper", "linearized") if key in value)
    for key in others:
        if len(value[key]) != len(value[first]):
            raise SchemaError(f"has length {len(value[key])}, expected {len(value[first])} as {first}", f".{key}")
    for i, (low, high) in enumerate(zip(value.get("lower", []), value.get("upper", []))):
        if high is not None and low > high:
            raise SchemaError(f"is {low}, expected at most upper[{i}], {high}", f".lower[{i}]")


def _all_plain(values: Iterable[Json], kind: Any) -> bool:
    """Whether all values have a plain type of `kind`, such as float | None: fast for a million margins."""
    types = set(get_args(kind) if get_origin(kind) is UnionType else (kind,))
    types |= {int} if float in types else set()
    return all(type(item) in types and (type(item) is not float or math.isfinite(item)) for item in values)


def _is_number(value: Json, kind: type, marks: tuple[object, ...] = ()) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        return False
    return math.isfinite(value) and all(m.least <= value <= m.most for m in marks if isinstance(m, Limits))


def _type(kind: Any) -> object:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return dict if is_typeddict(kind) else get_origin(kind) or kind


@cache
def _hints(kind: type) -> tuple[list[str], dict[str, Any]]:
    """The required keys of a `TypedDict`, and the types of all of its keys."""
    hints = get_type_hints(kind, include_extras=True)  # Python 3.11 does not know by itself which are required
    total = getattr(kind, "__total__", True)
    return [key for key, hint in hints.items() if total and get_origin(hint) is not NotRequired], hints


def _invalid(value: object, expected: str) -> SchemaError:
    shown = repr(value) if len(repr(value)) < 60 else f"a {type(value).__name__}"
    return SchemaError(f"is {shown}, expected {expected}")
