"""Fingerprints of settings: words and digests that are equal in every process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Mapping, Sized

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from widemargin.data import Data, Samples

LONGEST = 300


def describe(value: object) -> str:
    """`value` in words that do not change between processes: data and tensors by digest, functions by name."""
    words = _words(value)
    return words if len(words) <= LONGEST else f"{words[:80]}… (sha256 {_digest(words.encode())})"


def first_difference(stored: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """The name of the first setting that is not the same, or None."""
    return next((key for key in (*wanted, *stored) if stored.get(key) != wanted.get(key)), None)


def _words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"tensor {list(value.shape)} {value.dtype} sha256 {_digest(_bytes(value))}"
    if isinstance(value, Samples):
        return f"Samples(x={_words(value.x)}, y={_words(value.y)})"
    if isinstance(value, Data):
        return f"Data({value.name!r}, train={_words(value.train)}, test={_words(value.test)})"
    if isinstance(value, nn.Module):
        shapes = [f"{name} {list(t.shape)} {t.dtype}" for name, t in value.state_dict().items()]
        return f"{type(value).__name__} (sha256 {_digest(f'{_repr(value)}{shapes}'.encode())})"
    if isinstance(value, DataLoader):
        return f"DataLoader({_words(value.dataset)}, batch_size={value.batch_size}, {type(value.sampler).__name__})"
    if isinstance(value, TensorDataset):
        return _words(tuple(value.tensors))
    if isinstance(value, torch.utils.data.Dataset):
        return f"{_repr(value)} of {len(value) if isinstance(value, Sized) else 'unknown length'}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ", ".join(f"{f.name}={_words(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({fields})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, functools.partial):
        return f"{_words(value.func)}{_words(value.args)}{value.keywords}"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _repr(value)


def _repr(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # addresses differ between processes


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
