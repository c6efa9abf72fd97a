"""Requirements: each has a lower bound, each pinned package is needed, and the Pythons are those that are named."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared() -> list[Requirement]:
    """All requirements of the package and its extras, but those on itself."""
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [one for one in map(Requirement, lines) if one.name != "widemargin"]


def test_every_requirement_has_a_lower_bound() -> None:
    assert [str(one) for one in declared() if not any(part.operator == ">=" for part in one.specifier)] == []


def test_every_pinned_package_is_needed() -> None:
    needed: set[str] = set()
    waiting = declared()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in needed and not one.extras:
            continue
        needed.add(name)
        try:
            requires = map(Requirement, metadata.requires(name) or ())
        except metadata.PackageNotFoundError:  # of an extra that the tests do not install
            continue
        for other in requires:
            extras = ("", *one.extras)
            if other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(other)
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {canonicalize_name(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}
    assert pinned - needed == set()


def test_the_pythons_that_are_named_are_those_that_are_allowed() -> None:
    prefix = "Programming Language :: Python :: "
    named = {one.removeprefix(prefix) for one in PROJECT["classifiers"] if one.startswith(prefix)}
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert named == {f"3.{minor}" for minor in range(20) if f"3.{minor}.1" in allowed}
