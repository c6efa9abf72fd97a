"""Tuples of numbers of a loss, such as its weights, as tensors that are copied to each device once."""

from __future__ import annotations

import torch
from torch import Tensor


class KeptTensors:
    """Tensors by name, device and dtype. Copies and pickles are empty. A CUDA graph could not copy them in each step.

    A frozen loss holds one as a `functools.cached_property`, which takes no part in its equality, hash and repr.
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def __reduce__(self) -> tuple[type[KeptTensors], tuple[()]]:
        return KeptTensors, ()

    def get(self, name: str, numbers: tuple[float, ...], like: Tensor) -> Tensor:
        """`numbers`, which are the same in every call with this name, on the device and in the dtype of `like`."""
        key = name, like.device, like.dtype
        if key not in self._tensors:
            with torch.inference_mode(False):  # autograd refuses inference tensors later
                self._tensors[key] = torch.tensor(numbers, dtype=like.dtype, device=like.device)
        return self._tensors[key]

    def at(self, name: str, numbers: tuple[float, ...], index: Tensor | None, like: Tensor) -> Tensor:
        """The numbers at `index`, the positions of the samples of a batch in the training set; raises without them."""
        if index is None:
            raise ValueError(
                f"index is None, but {name} holds one number per training sample: expected the positions of the "
                f"{len(like)} samples of this batch"
            )
        least, most = int(index.min()), int(index.max())
        if least < 0 or most >= len(numbers):
            raise ValueError(f"index has {least if least < 0 else most}, but {name} has {len(numbers)} entries")
        return self.get(name, numbers, like)[index.to(like.device)]
