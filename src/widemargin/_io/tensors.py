"""Files of tensors: safetensors with a checksum, written atomically and read from one open file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from widemargin._io.files import write_whole

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUM = "sha256"
"""The entry of the metadata that holds the checksum of all tensors and of all other entries."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Path:
    """Replace the file at `path` by these tensors and this metadata."""
    from safetensors.torch import save_file

    signed = {**metadata, CHECKSUM: checksum(tensors, metadata)}
    return write_whole(path, lambda part: save_file(dict(tensors), part, metadata=signed))


def read_tensors(path: Path, *, signed: bool = True) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file; raises a `ValueError` where it can't be read or is not as it was written.

    The file is opened once, so that a replacement meanwhile can't mix two files. `signed=False` also takes a file that
    never had a checksum.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = path.read_bytes()
    try:
        tensors: dict[str, Tensor] = load(content)
        length = int.from_bytes(content[:8], "little")
        metadata: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} can't be read as a safetensors file: {reason}") from error
    stored = metadata.pop(CHECKSUM, None)
    if stored is None:
        if not signed:
            return tensors, metadata
        raise ValueError(f"{path} has no checksum, so it is damaged, or was written by something else")
    if stored != checksum(tensors, metadata):
        raise ValueError(f"{path} is damaged: its content does not have the checksum that was written with it")
    return tensors, metadata


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of the metadata, and of name, type, shape and bytes of every tensor."""
    import torch

    total = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
