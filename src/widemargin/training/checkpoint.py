"""Checkpoints: one safetensors file of tensors and JSON with a checksum, written atomically and without pickle.

Any tree of dicts, lists, tuples, numbers, strings, None and tensors can be stored, such as the states of all of torch's
optimizers: the tensors as they are, the tree as JSON in the file's metadata, with names in place of tensors. What a
training stores and restores is in `training.loop` (`FitLoop.save`, `FitLoop.resume`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from widemargin._io.locks import locked_folder
from widemargin._io.tensors import read_tensors, write_tensors
from widemargin.checks import check_count, check_number, check_path
from widemargin.training.fingerprint import first_difference

State: TypeAlias = dict[str, Any]
NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A folder for checkpoints: one every `every` steps, one every `seconds`, one when interrupted, one at the end."""

    folder: str | os.PathLike[str]
    every: int = 500
    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_path("folder", self.folder)
        check_count("every", self.every)
        check_number("seconds", self.seconds, above=0.0)


class OtherTrainingError(ValueError):
    """A folder holds the checkpoint of a training with another `setting`."""

    def __init__(self, message: str, setting: str) -> None:
        super().__init__(message)
        self.setting = setting


def save(folder: Path, state: Mapping[str, object], settings: Mapping[str, str]) -> Path:
    """Replace the checkpoint in `folder` by `state` atomically: a reader sees the old one or the new one."""
    tensors: dict[str, Tensor] = {}
    tree = _without_tensors(dict(state), "", tensors)
    metadata = {"state": json.dumps(tree), "settings": json.dumps(dict(settings))}
    return write_tensors(folder / NAME, tensors, metadata)


def load(folder: Path, settings: Mapping[str, str]) -> State | None:
    """The state in `folder`, or None; a `ValueError` where it is damaged or of a training with other settings.

    The checksum is compared before anything else.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        tensors, metadata = read_tensors(path)
        begun: dict[str, str] = json.loads(metadata["settings"])
        state: State = _with_tensors(json.loads(metadata["state"]), tensors)
    except (ValueError, KeyError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"checkpoint is {str(folder)!r}, whose {NAME} is no checkpoint that can be continued: {reason}; "
            "remove it to begin anew"
        ) from error
    if (key := first_difference(begun, settings)) is not None:
        seeded = ", or seed the network before it is built" if key == "initial weights" else ""
        raise OtherTrainingError(
            f"checkpoint is {str(folder)!r}, which holds a training with {key} {begun.get(key)}, but {key} is "
            f"{settings.get(key)}: name another folder{seeded}, or remove this one",
            key,
        )
    return state


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder` against other trainings, and remove the partial files of those that were killed while writing."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"checkpoint is {str(folder)!r}, which is a file, expected a folder")
    with locked_folder("checkpoint", folder):
        for part in folder.glob(f".{NAME}.*"):
            part.unlink(missing_ok=True)
        yield


def _without_tensors(value: object, name: str, tensors: dict[str, Tensor]) -> object:
    """JSON of `value`: a list as a list, and everything that JSON does not have as a dict of one entry."""
    if isinstance(value, Tensor):
        # A copy, since safetensors refuses tensors that share memory, as tied weights do.
        name = name if name not in tensors else f"{name} {len(tensors)}"  # "a/b" in one dict, b of a in another
        tensors[name] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, Mapping):
        pairs = [[key, _without_tensors(v, f"{name}/{key}", tensors)] for key, v in value.items()]
        if not all(isinstance(key, (str, int)) for key, _ in pairs):
            raise TypeError(f"{name} has keys that are neither text nor integers, which a checkpoint can't hold")
        return {"dict": pairs}
    if isinstance(value, tuple | list):
        items = [_without_tensors(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}, which a checkpoint can't hold: expected tensors and numbers")


def _with_tensors(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_with_tensors(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, inner),) = tree.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {key: _with_tensors(v, tensors) for key, v in inner}
    return tuple(_with_tensors(item, tensors) for item in inner)
