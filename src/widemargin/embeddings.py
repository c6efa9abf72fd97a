"""Embeddings of networks that take tokens: the places of their margins."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import nn

from widemargin.modules import ModelInputs, output_shapes, unwrap

_first: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def first_embedding(model: nn.Module, x: ModelInputs, dtype: torch.dtype) -> str:
    """The first embedding that a forward pass reaches whose output has a row for every sample.

    Encoders with shared weights have embeddings that no pass reaches, and those of positions have a row for each
    position. It is looked for once for each network, by passes of two and three samples in evaluation mode.
    """
    names, network = _embeddings(model, dtype), unwrap(model)
    if _first.get(network) not in names:
        counts = {min(len(x), 2), min(len(x), 3)}
        try:
            runs = {count: output_shapes(network, x[:count], names) for count in counts}
        except Exception:  # the caller's own pass raises it for all of x
            return names[0]
        has_rows = [
            name
            for name in runs[max(counts)]
            if all(any(shape is not None and shape[:1] == (count,) for shape in runs[count][name]) for count in counts)
        ]
        if not has_rows:
            raise ValueError(
                f"no embedding of {type(network).__name__} has a row for every sample ({', '.join(names)}): name a "
                "module with at=(…,)"
            )
        _first[network] = has_rows[0]
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
