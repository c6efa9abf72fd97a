"""Trained networks that other trials use again, in one folder, named by the hash of what they depend on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from torch import nn

from widemargin._io.files import write_whole
from widemargin.studies.rows import Row


def save(folder: Path | None, key: str, network: nn.Module, note: Row) -> None:
    """Write the weights whole or not at all, with a note of plain values inside."""
    if folder is None:
        return
    from safetensors.torch import save_file

    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    write_whole(_path(folder, key), lambda part: save_file(tensors, str(part), metadata={"note": json.dumps(note)}))


def load(folder: Path | None, key: str, build: Callable[[], nn.Module]) -> tuple[nn.Module, Row] | None:
    """The network of `build` with the weights that were kept, and the note; None where there are none."""
    if folder is None or not _path(folder, key).is_file():
        return None
    from safetensors import safe_open

    with safe_open(str(_path(folder, key)), framework="pt") as file:
        note = json.loads(file.metadata()["note"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    network = build()
    network.load_state_dict(tensors)
    return network, note


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.safetensors"
