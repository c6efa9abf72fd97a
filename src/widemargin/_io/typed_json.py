"""Validation of plain values, as JSON has them, against `TypedDict`s."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Json: TypeAlias = Any
"""A plain value: a number, text, None, or lists and dictionaries of them."""

HUGE = 1e150
"""Numbers are smaller than this, so that their squares are finite."""


class Limits(NamedTuple):
    """The interval that a number lies in."""

    least: float | int
    most: float | int = math.inf

    def __str__(self) -> str:
        return f"in [{self.least:g}, {self.most:g}]" if math.isfinite(self.most) else f">= {self.least:g}"


class Length(NamedTuple):
    """The length of a list."""

    entries: int


class Pattern(NamedTuple):
    """The regular expression of a string, and what is expected, in words."""

    regex: str
    words: str


class SchemaError(ValueError):
    """A value that does not fit its schema, and its path."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path} {problem}")
        self.problem, self.path = problem, path


_UNKNOWN: ContextVar[bool] = ContextVar("unknown", default=False)


def read_json(path: Path) -> Json:
    """The values in a JSON file; a `ValueError` that names the file where it is none."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError(f"{path} has values inside values too deep to be read") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error


def check_type(value: Json, kind: object, name: str, *, unknown: bool = False) -> None:
    """Raise a `ValueError` with the path, below `name`, of the first entry of `value` that does not fit `kind`.

    `unknown` allows keys that `kind` does not name.
    """
    before = _UNKNOWN.set(unknown)
    try:
        with below(name):
            _check(value, kind)
    except RecursionError as error:
        raise SchemaError("has values inside values too deep to be read", name) from error
    finally:
        _UNKNOWN.reset(before)


@contextmanager
def below(path: str) -> Iterator[None]:
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
                with below(f".{key}"):
                    _check(item, args[1])
    elif kind in (int, float) and not _is_number(value, kind, marks):
        limits = "".join(f" {mark}" for mark in marks if isinstance(mark, Limits))
        raise _invalid(value, f"a {'whole ' if kind is int else ''}number{limits}")
    elif (origin is Literal and value not in args) or (kind in (str, bool) and not isinstance(value, kind)):
        raise _invalid(value, "a string" if kind is str else " or ".join(map(repr, args or (True, False))))
    else:
        for mark in marks:
            if isinstance(mark, Pattern) and isinstance(value, str) and not re.fullmatch(mark.regex, value):
                raise SchemaError(f"is a string, expected {mark.words}")


def _check_list(value: Json, kind: object, marks: tuple[object, ...]) -> None:
    length = next((mark.entries for mark in marks if isinstance(mark, Length)), None)
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise _invalid(value, "a list" if length is None else f"a list of {length} numbers")
    if not _all_plain(value, kind):
        for i, item in enumerate(value):
            with below(f"[{i}]"):
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
            if _UNKNOWN.get():
                continue
            raise SchemaError(f"has the unknown key {key!r}, expected one of {', '.join(hints)}")
        with below(f".{key}"):
            _check(item, hints[key])


def _all_plain(values: Iterable[Json], kind: Any) -> bool:
    """Whether all values have a plain type of `kind`, such as float | None, and are in its limits: fast for millions.

    False also where that is not known.
    """
    limits = _limits(kind)
    if limits is None:
        return False
    for item in values:
        within = limits.get(type(item))
        if within is None or (within and not within[0] <= item <= within[1]):
            return False
    return True


@cache
def _limits(kind: Any) -> dict[type, tuple[float, ...]] | None:
    """The plain types that `kind` allows, numbers with their limits; None for kinds with anything else in them."""
    found: dict[type, tuple[float, ...]] = {}
    for one in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        base, *marks = get_args(one) if get_origin(one) is Annotated else (one,)
        if base in (str, bool, NoneType) and not marks:
            found[base] = ()
        elif base in (int, float) and all(isinstance(mark, Limits) for mark in marks):
            least, most = max([-HUGE, *(m.least for m in marks)]), min([HUGE, *(m.most for m in marks)])
            found |= dict.fromkeys((int, float) if base is float else (int,), (float(least), float(most)))
        else:
            return None
    return found


def _is_number(value: Json, kind: type, marks: tuple[object, ...] = ()) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        return False
    return abs(value) < HUGE and all(m.least <= value <= m.most for m in marks if isinstance(m, Limits))


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
    shown = reprlib.repr(value)  # short, however deep or long the value is
    return SchemaError(f"is {shown if len(shown) < 60 else f'a {type(value).__name__}'}, expected {expected}")
