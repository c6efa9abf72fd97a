"""Embeddings of networks that take tokens: the places of their margins."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import nn

from widemargin.modules import ModelInputs, output_shapes, unwrap

_first: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def first_embedding(model: nn.Module, x: ModelInputs, dtype: torch.dtype) -> str:
    """The first embedding that a forward pass reaches: encoders with shared weights have others that none reaches.

    It is looked for once for each network, by a pass of two samples in evaluation mode.
    """
    names, network = _embeddings(model, dtype), unwrap(model)
    if len(names) == 1:
        return names[0]
    if _first.get(network) not in names:
        try:
            shapes = output_shapes(network, x[:2], names)
        except Exception:  # the caller's own pass raises it for all of x
            return names[0]
        _first[network] = next((name for name in names if shapes[name]), names[0])
    return _first[network]


def embedding_places(model: nn.Module, dtype: torch.dtype) -> list[str]:
    """The embeddings of a network that takes integers, and last the module that adds several of them up."""
    found = _embeddings(model, dtype)
    around = found[0].rpartition(".")[0]
    inside = [name for name in found if name.rpartition(".")[0] == around]
    return [*found, around] if around and len(inside) > 1 else found


def _embeddings(model: nn.Module, dtype: torch.dtype) -> list[str]:
    modules = unwrap(model).named_modules()
    found = [name for name, module in modules if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    if not found:
        raise ValueError(
            f"the input has integers ({dtype}) and {type(unwrap(model)).__name__} has no nn.Embedding: pass x.float() "
            "if they are numbers, or name a module with at=(…,) if they are tokens"
        )
    return found
