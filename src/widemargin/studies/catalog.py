"""Results of the four papers by id, and the modules that declare them. To add one: declare it and list it here."""

from __future__ import annotations

import difflib
import importlib
from typing import cast

from widemargin.studies.schema import Study

# Every module has its studies as attributes named by their ids.
_DECLARED = {
    "elsayed.toy_boundary": "E1",
    "elsayed.trained_on_all": "E2 E5 E6 E7 E8 E9",
    "elsayed.noisy_and_small": "E3 E4",
    "elsayed.cifar10": "E10 E11 E12 E13 E15 E16",
    "elsayed.imagenet": "E14",
    "elsayed.affine": "E17 E18",
    "odn.accuracy": "O1 O2 O3 O4",
    "odn.compactness": "O5 O6",
    "odn.margins": "O7 O8",
    "sokolic.regularized": "S2 S3",
    "sokolic.theorems": "S1 S4 S5",
    "farhang.labels": "F1 F2 F3",
    "farhang.rejection_twins": "F4 F5 F6",
    "farhang.controlled": "F7 F8 F9",
}
_IDS = {id: module for module, ids in _DECLARED.items() for id in ids.split()}
MODULES = {id: _IDS[id] for id in sorted(_IDS, key=lambda id: ("EOSF".index(id[0]), int(id[1:])))}
"""Ids of all studies, in the order of the papers, with the modules that declare them."""


def study(id: str) -> Study:
    """The study of that id."""
    name = id.upper()
    if name not in MODULES:
        close = difflib.get_close_matches(name, MODULES, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"id is {id!r}, which is no study: {hint}Expected E1..E18, O1..O8, S1..S5 or F1..F9")
    return cast(Study, getattr(importlib.import_module(f"widemargin.studies.{MODULES[name]}"), name))


def declared() -> list[Study]:
    """All studies."""
    return [study(id) for id in MODULES]
