"""Fingerprints of settings: words and digests that are equal in every process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Mapping, Sized
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from widemargin._autograd.preserve_rng import preserve_rng, with_rng_lock
from widemargin.data import Data, Samples
from widemargin.training.batches import seed_all

LONGEST = 300

FIXED = (bool, int, float, complex, str, bytes, tuple, type(None), Tensor, FunctionType, functools.partial)
"""Types of enclosed values and attributes that are settings; other objects, as lists, may count steps."""

SAMPLES = 8
"""The number of samples of a data set of unknown kind that are read."""

OWN = ("widemargin", "torch")
"""Packages whose functions and objects are known by their names."""


def describe(value: object) -> str:
    """`value` in words that do not change between processes: data, tensors and functions of your own by digest."""
    try:
        words = _words(value)
    except RecursionError:  # of objects that hold each other
        words = _repr(value)
    return words if len(words) <= LONGEST else f"{words[:80]}… (sha256 {_digest(words.encode())})"


def name_of(value: object) -> str:
    """`describe` without digests, for messages."""
    return re.sub(r" \(sha256 \w+\)", "", describe(value))


def first_difference(stored: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """The name of the first setting that is not the same, or None."""
    return next((key for key in (*wanted, *stored) if stored.get(key) != wanted.get(key)), None)


def _words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"tensor {list(value.shape)} {value.dtype} sha256 {_digest(_bytes(value))}"
    if isinstance(value, nn.Module):
        shapes = [f"{name} {list(t.shape)} {t.dtype}" for name, t in value.state_dict().items()]
        return f"{type(value).__name__} (sha256 {_digest(f'{_repr(value)}{shapes}'.encode())})"
    if isinstance(value, Samples | Data | DataLoader | Dataset):
        return _words_of_data(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ", ".join(f"{f.name}={_words(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({fields})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_words(key)}: {_words(item)}' for key, item in value.items())}}}"
    if isinstance(value, functools.partial):
        return f"{_words(value.func)}{_words(value.args)}{_words(value.keywords)}"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}{_digest_of_code(value)}"
    if type(value).__repr__ is object.__repr__ and (own := getattr(value, "__dict__", None)):
        return f"{_repr(value)} {_words({name: item for name, item in own.items() if isinstance(item, FIXED)})}"
    return _repr(value)


def _words_of_data(data: Samples | Data | DataLoader[Any] | Dataset[Any]) -> str:
    if isinstance(data, Samples):
        return f"Samples(x={_words(data.x)}, y={_words(data.y)})"
    if isinstance(data, Data):
        return f"Data({data.name!r}, train={_words(data.train)}, test={_words(data.test)})"
    if isinstance(data, DataLoader):
        drawn = [getattr(data.sampler, name) for name in ("indices", "weights") if hasattr(data.sampler, name)]
        sampler = f"{type(data.sampler).__name__}{_words(drawn) if drawn else ''}"
        return f"DataLoader({_words(data.dataset)}, batch_size={data.batch_size}, {sampler})"
    if isinstance(data, TensorDataset):
        return _words(tuple(data.tensors))
    if isinstance(data, Subset):
        return f"Subset({_words(data.dataset)}, {_words(torch.as_tensor(data.indices))})"
    if isinstance(data, ConcatDataset):
        return f"ConcatDataset{_words(tuple(data.datasets))}"
    labels = [getattr(data, name) for name in ("targets", "labels") if hasattr(data, name)]
    parts = [_repr(data), f"of {len(data) if isinstance(data, Sized) else 'unknown length'}", *_some_samples(data)]
    return " ".join(parts + [f"sha256 {_digest(_words(labels).encode())}"] * bool(labels))


@with_rng_lock
def _some_samples(data: Dataset[Any]) -> list[str]:
    """The digest of some samples, where they can be read by position; generators are restored."""
    if not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
        return []
    with preserve_rng(torch.device("cpu")):
        seed_all(torch.device("cpu"), "fingerprint")  # of random transforms
        try:
            read = [data[i] for i in range(0, len(data), max(1, -(-len(data) // SAMPLES)))]
        except Exception:  # of the data set: training raises it where it reads this sample
            return []
    return [f"sha256 {_digest(_words(read).encode())}"]


def _digest_of_code(function: object) -> str:
    """The digest of a function of your own: of its code, defaults and enclosed values."""
    function = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(function, FunctionType) or str(function.__module__).split(".")[0] in OWN:
        return ""
    cells = [cell.cell_contents for cell in function.__closure__ or () if isinstance(cell.cell_contents, FIXED)]
    words = [*_words_of_code(function.__code__), _words(function.__defaults__), _words(function.__kwdefaults__)]
    return f" (sha256 {_digest(' '.join([*words, _words(cells)]).encode())})"


def _words_of_code(code: CodeType) -> list[str]:
    constants = [word for c in code.co_consts for word in (_words_of_code(c) if isinstance(c, CodeType) else [repr(c)])]
    return [code.co_code.hex(), *code.co_names, *constants]


def _repr(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # addresses differ between processes


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
