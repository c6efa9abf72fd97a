"""Studies by id, and the modules that declare them: the papers' results, and our own. To add one: list it here."""

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
    "elsayed.cifar10": "E10 E11 E12 E13 E15",
    "elsayed.step_cost": "E16",
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
_OWN = {
    "widemargin.small_data": "W1 W2 W3",
    "widemargin.cifar10": "W4",
    "widemargin.cost": "W5",
}


def _sorted(modules: dict[str, str], letters: str) -> dict[str, str]:
    ids = {id: module for module, named in modules.items() for id in named.split()}
    return {id: ids[id] for id in sorted(ids, key=lambda id: (letters.index(id[0]), int(id[1:])))}


MODULES = _sorted(_DECLARED, "EOSF")
"""Ids of all results of the papers, in their order, with the modules that declare them."""

OWN = _sorted(_OWN, "W")
"""The same for our own studies, of `losses.WideMargin`: their thresholds were written down before the runs."""

_BY_VALUE = (
    "E2 E5 E6 E7 E8 E9 E3 F7 F8 F1 F2 F3 F4 F6 E1 E4 O2 S3 S2 F5 E12 E15 E10 E13 O3 O4 E11 O1 O5 O6 O7 "
    "S4 S5 S1 O8 F9 E17 E18 E16 E14"
)
BY_VALUE = tuple(_BY_VALUE.split())
"""The papers' studies in the order in which a run of all of them takes them: first what is open and cheap to decide.

E2 trains the networks of E5 to E9, and E15 watches trainings whose networks E10, E13 and E11 use again.
"""


def study(id: str) -> Study:
    """The study of that id."""
    name, modules = id.upper(), MODULES | OWN
    if name not in modules:
        close = difflib.get_close_matches(name, modules, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(
            f"id is {id!r}, which is no study: {hint}Expected E1..E18, O1..O8, S1..S5, F1..F9 or W1..W{len(OWN)}"
        )
    return cast(Study, getattr(importlib.import_module(f"widemargin.studies.{modules[name]}"), name))


def declared() -> list[Study]:
    """All studies of the papers' results."""
    return [study(id) for id in MODULES]


def own() -> list[Study]:
    """All studies of our own."""
    return [study(id) for id in OWN]
