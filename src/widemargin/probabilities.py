"""Detection of networks that return probabilities, and their scores."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from typing import Literal, TypeAlias
from weakref import WeakSet

import torch
from torch import Tensor, nn

from widemargin.checks import check_choice, check_module, skips_values
from widemargin.modules import scores_of, unwrap
from widemargin.types import HALF, Scores, is_binary, wide

Outputs: TypeAlias = Literal["logits", "probabilities"]
"""What a network returns: scores, or probabilities by a softmax or, with one output, a sigmoid."""

_checked: WeakSet[nn.Module] = WeakSet()
"""Networks whose outputs were found to be scores."""


def from_probabilities(model: nn.Module) -> nn.Module:
    """A network with the scores of `model`, which returns probabilities: log p, or log p/(1 − p) of a single p.

    Scores are known up to a constant per sample, which changes no margin and no decision. Where the last operation is
    an `nn.Softmax` or `nn.Sigmoid`, they are its inputs, to the last bit; otherwise a probability that rounds to 0 or 1
    has no finite score, and an error says so. Names of places are those of `model`, and its weights are trained.
    """
    check_module(model)
    return model if isinstance(model, FromProbabilities) else FromProbabilities(model)


class FromProbabilities(nn.Module):
    """The scores of a network that returns probabilities, see `from_probabilities`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.wrapped_network = network
        self.training = network.training
        self._heads = [head for head in unwrap(network).modules() if _is_head(head)]  # a list registers no modules
        self._is_checked = False

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """The scores."""
        seen: list[tuple[Tensor, Tensor, nn.Module]] = []

        def keep(head: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen.append((inputs[0], output, head))

        with ExitStack() as stack:
            for head in self._heads:
                if not head._forward_hooks:  # a watched place, whose output is not that of the head
                    stack.callback(head.register_forward_hook(keep).remove)
            outputs = scores_of(self.wrapped_network(*args, **kwargs))
        last = next((one for one in reversed(seen) if _is_same(one[1], outputs)), None)
        if not self._is_checked and not skips_values(outputs):
            _check_probabilities(outputs, is_sigmoid=last is not None and isinstance(last[2], nn.Sigmoid))
            self._is_checked = True
        return log_scores(outputs) if last is None else last[0].reshape(outputs.shape)


def log_scores(probabilities: Scores) -> Scores:
    """log p of every class, or log p/(1 − p) where there is one probability per sample."""
    p = wide(probabilities)
    return torch.logit(p) if is_binary(p) else p.log()


def without_head(network: nn.Module) -> nn.Module:
    """An `nn.Sequential` without the softmax or sigmoid at its end, of the same layers; other networks as they are."""
    layers = list(network.named_children())
    if type(network).forward is not nn.Sequential.forward or not layers or not _is_head(layers[-1][1]):
        return network
    rest = nn.Sequential(OrderedDict(layers[:-1]))
    rest.training = network.training
    return rest


def read_model(model: nn.Module, read_as: str) -> nn.Module:
    """`from_probabilities(model)` where `read_as` says so, else `model`."""
    check_module(model)
    check_choice("read_as", read_as, ("logits", "softmax", "probabilities"))
    return from_probabilities(model) if read_as == "probabilities" else model


def check_are_scores(model: nn.Module, scores: Tensor) -> None:
    """Raise if `scores` of `model` are probabilities; looked at once for each network, so that steps do not wait."""
    if model in _checked or isinstance(model, FromProbabilities) or skips_values(scores):
        return
    head = _head_of(model, scores.detach())
    if head is not None:
        raise ValueError(
            f"the network returns probabilities, not scores ({head}): take the end of the network off, pass "
            "read_as='probabilities' where there is such an argument, or use margins.from_probabilities(model)"
        )
    _checked.add(model)


def _head_of(model: nn.Module, outputs: Tensor) -> str | None:
    """How the outputs are known to be probabilities, or None."""
    if not outputs.numel() or not bool(((outputs >= 0) & (outputs <= 1)).all()):
        return None
    leaves = [module for module in unwrap(model).modules() if not any(module.children())]
    if leaves and _is_head(leaves[-1]):
        return f"its last layer is an nn.{type(leaves[-1]).__name__}"
    between = bool(((outputs > 0) & (outputs < 1)).any())  # scores may well be 0 and 1
    if between and not is_binary(outputs) and _adds_up(outputs):
        return "numbers in [0, 1] that add up to 1, as those of a softmax"
    return None


def _adds_up(outputs: Tensor) -> bool:
    tolerance = 1e-2 if outputs.dtype in HALF else 1e-5
    return outputs.ndim == 2 and bool(((wide(outputs).sum(dim=1) - 1).abs() <= tolerance).all())


def _check_probabilities(outputs: Tensor, *, is_sigmoid: bool) -> None:
    p = outputs.detach()
    if not bool(((p >= 0) & (p <= 1)).all()):
        wrong = float(p[~((p >= 0) & (p <= 1))][0])
        raise ValueError(f"read_as is 'probabilities', but the network returned {wrong:g}, expected numbers in [0, 1]")
    if not is_binary(p) and not is_sigmoid and not _adds_up(p):
        raise ValueError(
            f"read_as is 'probabilities', but those of a sample add up to {float(p[0].sum()):g}, expected 1: "
            "take off what the network ends in"
        )


def _is_head(module: nn.Module) -> bool:
    return isinstance(module, nn.Sigmoid) or (isinstance(module, nn.Softmax) and module.dim in (1, -1, None))


def _is_same(output: object, outputs: Tensor) -> bool:
    """Whether these are the same numbers in memory, perhaps in another shape."""
    return isinstance(output, Tensor) and output.data_ptr() == outputs.data_ptr() and output.numel() == outputs.numel()
