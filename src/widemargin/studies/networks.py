"""Networks of trials: fresh ones by their seed, and trained ones on disk, named by the hash of their settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from widemargin import population, registry
from widemargin._io.tensors import read_tensors, write_tensors
from widemargin.studies.settings import Settings


def build(settings: Settings, seed: int, device: str = "cpu") -> nn.Module:
    """The network of that seed before its first step, on the device."""
    return population.build(lambda: registry.network(settings), [seed])[0].to(device)


def fit_options(settings: Settings) -> dict[str, Any]:
    """Arguments of `population.fit` that all networks of a population share."""
    return {
        "schedule": registry.schedule(settings.get("schedule", {"name": "constant"})),
        "steps": settings["steps"],
        "batch_size": settings.get("batch"),
        "until": settings.get("until"),
        "gradient_clip": settings.get("gradient_clip"),
        "progress": False,
    }


def save(folder: Path | None, key: str, network: nn.Module, note: Settings) -> None:
    """Write the weights whole or not at all, with a note of plain values inside."""
    if folder is None:
        return
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    write_tensors(_path(folder, key), tensors, {"note": json.dumps(note)})


def load(folder: Path | None, key: str, build: Callable[[], nn.Module]) -> tuple[nn.Module, Settings] | None:
    """The network of `build` with the weights that were kept, and the note; None where there are none.

    A file that is damaged counts as none: the network is trained again, and the file replaced.
    """
    if folder is None or not _path(folder, key).is_file():
        return None
    try:
        tensors, metadata = read_tensors(_path(folder, key), signed=False)  # earlier versions wrote none
    except ValueError:
        return None
    network = build()
    network.load_state_dict(tensors)
    return network, json.loads(metadata["note"])


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.safetensors"
