"""Result files of studies with damaged, hostile and nested content, and the pages that `widemargin report` writes.

A case holds where the file is refused in a sentence that names it, or where pages are written and nothing else is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from report.test_studies import RESULT
from widemargin.report import studies
from widemargin.studies import catalog, result

SMALL, LARGE = 40, 1000

NAMES = (
    "../../escaped",
    "/tmp/escaped",
    "index",
    "E4",
    "",
    "E3\x00",
    "e3",
    "E3.html",
    "javascript:alert(1)",
    "E" * 300,
)
TEXTS = (
    "\u2028",
    "\x00",
    "\ud800",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "x" * 10_000,
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**400, 1e308, -1e308, float("nan"), float("inf"), 2**63),
    *("", "1", [], {}, [[]], [None], {"": 0}, {"a": {"b": 1}}, *TEXTS),
)


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case."""
    drawn = random.Random(seed)
    for case in range(count):
        place = folder / f"{case}"
        (place / "results").mkdir(parents=True)
        path = place / "results" / "E3.json"
        path.write_bytes(mutated(drawn))
        yield outcome(path, place)


def outcome(path: Path, place: Path) -> str:
    """What is wrong; nothing where the case held."""
    try:
        found: dict[str, Any] | None = result.read(path)
    except ValueError as error:
        said = str(error)
        if str(path) not in said or len(said) > 600 or "\n" in said:
            return f"refused in other words: {said[:200]!r}"
        found = None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found is not None:
        try:
            if "word" not in found:  # as of an earlier release
                found = result.rejudge(catalog.study("E3"), found)
            studies.write(place / "pages", [found])
        except Exception as error:
            return f"accepted, then {type(error).__name__}: {str(error)[:200]}"
    allowed = {"index.html", "holds.html", "E3.html", "scoreboard.svg", "E3.json"}
    others = [one.name for one in place.rglob("*") if one.is_file() and one.name not in allowed]
    return f"wrote {others}" if others else ""


def mutated(drawn: random.Random) -> bytes:
    """The bytes of a result with one to three changes."""
    value = json.loads(json.dumps(RESULT))
    kind = drawn.randrange(8)
    if kind == 0:
        value["study"] = drawn.choice(NAMES)
    for _ in range(drawn.randint(1, 3) if 0 < kind < 6 else 0):
        parent, key = drawn.choice(list(places(value)))
        if kind == 1:
            del parent[key]
        elif kind == 2 and isinstance(parent[key], str):
            parent[key] += drawn.choice(TEXTS)
        else:
            parent[key] = drawn.choice(VALUES)
    content = json.dumps(value).encode()
    if kind == 6:  # damaged bytes
        changed = bytearray(content)
        for _ in range(drawn.randint(1, 8)):
            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
        return bytes(changed)
    if kind == 7:  # cut, doubled, nested too deep
        cut = drawn.randrange(len(content))
        deep = b'{"rows": ' + b"[" * 50_000
        return drawn.choice([content[:cut], content + content[:cut], deep, b"1" * 5000, b""])
    return content


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All places inside a value: a container and a key of it."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from places(inner)
