"""Settings: nested mappings of plain values, how they are merged, and their hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Settings: TypeAlias = Mapping[str, Any]
"""Plain values: numbers, words, True, False, None, lists or tuples of them, and mappings of words to them."""


SettingsDict: TypeAlias = dict[str, Any]
"""Settings of one's own, which may be changed."""


def sgd(lr: float) -> Settings:
    """SGD with momentum 0.9, of the registry."""
    return {"name": "sgd", "lr": lr, "momentum": 0.9}


def overlay(*layers: Settings) -> SettingsDict:
    """`layers` laid over one another, later ones on top; keys with dots reach inside. Tuples become lists.

    Mappings are merged key by key, unless both have a `name` and these differ: then the upper one replaces the lower.
    """
    result: SettingsDict = {}
    for layer in layers:
        for path, value in layer.items():
            _put(result, path.split("."), value)
    return result


def plain(value: Any) -> Any:
    """`value` as JSON would give it back: lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`."""
    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_plain(what: str, value: Any) -> None:
    """Raise unless `value` is made of what JSON knows; infinity is the word "inf"."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{what} has the key {key!r}, expected a word")
            check_plain(what, inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            check_plain(what, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what} has {value}, expected finite numbers (write 'inf' for the norm)")
    elif not isinstance(value, (str, int, float, bool, type(None))):
        raise TypeError(f"{what} has {value!r}, a {type(value).__name__}, expected plain values")


def check_keys(settings: Settings, known: Sequence[str], what: str = "settings", *, exactly: bool = False) -> None:
    """Raise at an unknown key; with `exactly` at a missing one too."""
    for key in settings:
        if key not in known:
            raise ValueError(f"{what} has {key!r}, expected {', '.join(known)}")
    for key in known if exactly else ():
        if key not in settings:
            raise ValueError(f"{what} has no {key!r}, expected {', '.join(known)}")


def _put(into: SettingsDict, path: list[str], value: Any) -> None:
    first, rest = path[0], path[1:]
    if rest:
        inner = into.get(first)
        into[first] = dict(inner) if isinstance(inner, Mapping) else {}
        _put(into[first], rest, value)
    elif isinstance(value, Mapping) and isinstance(into.get(first), Mapping) and not _renamed(into[first], value):
        into[first] = overlay(into[first], value)
    else:
        into[first] = overlay(value) if isinstance(value, Mapping) else plain(value)


def _renamed(lower: Settings, upper: Settings) -> bool:
    return "name" in lower and "name" in upper and lower["name"] != upper["name"]
