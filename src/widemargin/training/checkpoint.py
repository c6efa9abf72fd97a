"""Checkpoints: one safetensors file of tensors and JSON, written atomically and without pickle.

Any tree of dicts, lists, tuples, numbers, strings, None and tensors can be stored, such as the states of all of torch's
optimizers: the tensors as they are, the tree as JSON in the file's metadata, with names in place of tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from widemargin._io.files import write_whole
from widemargin.checks import check_count
from widemargin.training.fingerprint import first_difference

State: TypeAlias = dict[str, Any]
NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A folder for checkpoints, with one every `every` steps and one at the end."""

    folder: str | os.PathLike[str]
    every: int = 500

    def __post_init__(self) -> None:
        check_count("every", self.every)


def save(folder: Path, state: Mapping[str, object], settings: Mapping[str, str]) -> Path:
    """Replace the checkpoint in `folder` by `state` atomically: a reader sees the old one or the new one."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    tree = _without_tensors(dict(state), "", tensors)
    metadata = {"state": json.dumps(tree), "settings": json.dumps(dict(settings))}
    return write_whole(folder / NAME, lambda part: save_file(tensors, part, metadata=metadata))


def load(folder: Path, settings: Mapping[str, str]) -> State | None:
    """The state in `folder`, or None; a `ValueError` where it belongs to a training with other settings."""
    from safetensors import SafetensorError, safe_open

    path = folder / NAME
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"checkpoint is {str(folder)!r}, which is a file, expected a folder")
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise ValueError(f"checkpoint is {str(path)!r}, which is not a safetensors file ({error})") from error
    if not {"state", "settings"} <= metadata.keys():
        raise ValueError(f"checkpoint is {str(path)!r}, a safetensors file that is not a checkpoint of a training")
    begun: dict[str, str] = json.loads(metadata["settings"])
    if (key := first_difference(begun, settings)) is not None:
        seeded = ", or seed the network before it is built" if key == "initial weights" else ""
        raise ValueError(
            f"checkpoint is {str(folder)!r}, which holds a training with {key} {begun.get(key)}, but {key} is "
            f"{settings.get(key)}: name another folder{seeded}, or remove this one"
        )
    state: State = _with_tensors(json.loads(metadata["state"]), tensors)
    return state


def sweep(folder: Path) -> None:
    """Remove the partial files of trainings that were killed while writing from `folder`."""
    for part in folder.glob(f".{NAME}.*"):
        part.unlink(missing_ok=True)


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
