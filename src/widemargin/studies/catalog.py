"""Results of the four papers by id, with the modules that declare them. To add one: a file and a line here."""

from __future__ import annotations

import difflib
import importlib

from widemargin.studies.schema import Study

IDS: tuple[str, ...] = (
    *(f"E{i}" for i in range(1, 19)),
    *(f"O{i}" for i in range(1, 9)),
    *(f"S{i}" for i in range(1, 6)),
    *(f"F{i}" for i in range(1, 10)),
)
"""elsayed, odn, sokolic, farhang: 40 in all."""

# Every module has its studies as attributes named by their ids.
MODULES: dict[str, str] = {
    "E1": "elsayed.toy_boundary",
    "E2": "elsayed.mnist_accuracy",
    "E3": "elsayed.noisy_labels",
    "E4": "elsayed.small_samples",
    "E5": "elsayed.white_box",
    "E6": "elsayed.white_box",
    "E7": "elsayed.black_box",
    "E8": "elsayed.black_box",
    "E9": "elsayed.gaussian_noise",
    "E10": "elsayed.cifar10_accuracy",
    "E11": "elsayed.cifar10_noisy_labels",
    "E12": "elsayed.cifar10_small_samples",
    "E13": "elsayed.cifar10_attacks",
    "E14": "elsayed.imagenet",
    "E15": "elsayed.cifar10_distances",
    "E16": "elsayed.step_cost",
    "E17": "elsayed.svm",
    "E18": "elsayed.exact_distance",
    "O1": "odn.accuracy",
    "O2": "odn.small_samples",
    "O3": "odn.small_samples",
    "O4": "odn.regularized",
    "O5": "odn.compactness",
    "O6": "odn.compactness",
    "O7": "odn.margin_density",
    "O8": "odn.bound",
    "S1": "sokolic.plane",
    "S2": "sokolic.fully_connected",
    "S3": "sokolic.convolutional",
    "S4": "sokolic.distance_preservation",
    "S5": "sokolic.generalization_bounds",
    "F1": "farhang.spectral_margins",
    "F2": "farhang.spectral_margins",
    "F3": "farhang.attack_sets",
    "F4": "farhang.rejection_twins",
    "F5": "farhang.rejection_twins",
    "F6": "farhang.rejection_twins",
    "F7": "farhang.controlled_margins",
    "F8": "farhang.ensembles",
    "F9": "farhang.ensembles",
}


def study(id: str) -> Study:
    """The study of that id."""
    name = id.upper()
    if name not in IDS:
        close = difflib.get_close_matches(name, IDS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"id is {id!r}, which is no study: {hint}Expected E1..E18, O1..O8, S1..S5 or F1..F9")
    if name not in MODULES:
        raise ValueError(f"study {name} is not declared yet")
    declared: Study = getattr(importlib.import_module(f"widemargin.studies.{MODULES[name]}"), name)
    return declared


def declared() -> list[Study]:
    """All studies that are declared, in the order of `IDS`."""
    return [study(id) for id in IDS if id in MODULES]
