"""Files of tensors: what was written, or one error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from widemargin._io.tensors import read_tensors, write_tensors

TENSORS = {
    "a/b": torch.arange(6.0).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "one": torch.tensor(3),
    "none": torch.ones(0),
    "flags": torch.tensor([True, False]),
    "turned": torch.arange(6.0).reshape(2, 3).t().contiguous(),
}


def written(folder: Path) -> Path:
    return write_tensors(folder / "some.safetensors", TENSORS, {"note": "γ\n", "other": "{}"})


def test_tensors_and_metadata_come_back(tmp_path: Path) -> None:
    tensors, metadata = read_tensors(written(tmp_path))
    assert metadata == {"note": "γ\n", "other": "{}"}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """Some other JSON may say the same: then what is read is what was written."""
    path = written(tmp_path)
    content = path.read_bytes()
    generator = torch.Generator().manual_seed(0)
    silent = 0
    for bit in torch.randperm(8 * len(content), generator=generator)[:600].tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            tensors, metadata = read_tensors(path)
        except ValueError:
            continue
        silent += 1
        assert metadata == {"note": "γ\n", "other": "{}"}
        assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert silent < 20


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"some\.safetensors"):
            read_tensors(path)


def test_a_file_without_a_checksum_is_refused(tmp_path: Path) -> None:
    save_file({"w": torch.ones(1)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="no checksum"):
        read_tensors(tmp_path / "w.safetensors")
    assert read_tensors(tmp_path / "w.safetensors", signed=False)[0].keys() == {"w"}


def test_a_folder_whose_name_is_no_unicode(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    tensors, _ = read_tensors(written(folder))
    assert tensors.keys() == TENSORS.keys()
