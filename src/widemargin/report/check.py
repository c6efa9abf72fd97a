"""Validation of results and pictures against the types of their schemas, before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from widemargin._io.typed_json import Json, SchemaError, below, check_type
from widemargin.report.schema import Moment, Picture, Result


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
    for path, columns in _columns(result):
        with below(path):
            _check_columns(columns)
    return cast(Result, result)


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


def _columns(result: Json) -> Iterator[tuple[str, Mapping[str, list[Json]]]]:
    """The densities and brackets of a result, with their paths."""
    for i, arm in enumerate(result["arms"]):
        for place, margins in arm.get("margins", {}).items():
            if isinstance(margins, Mapping):
                yield f"result.arms[{i}].margins.{place}", margins
        if "bracket" in arm:
            yield f"result.arms[{i}].bracket", arm["bracket"]


def _check_columns(value: Mapping[str, list[Json]]) -> None:
    """Check that the columns of a density or a bracket have one length, and lower bounds are at most upper bounds."""
    first, *others = (key for key in ("grid", "density", "lower", "upper", "linearized") if key in value)
    for key in others:
        if len(value[key]) != len(value[first]):
            raise SchemaError(f"has length {len(value[key])}, expected {len(value[first])} as {first}", f".{key}")
    for i, (low, high) in enumerate(zip(value.get("lower", []), value.get("upper", []))):
        if high is not None and low > high:
            raise SchemaError(f"is {low}, expected at most upper[{i}], {high}", f".lower[{i}]")
