"""The protocol of losses, and functions that read its optional attributes.

A loss is any callable `loss(model, x, y) -> [batch]`. It may also have

- `backward(model, x, y, *, scale, memory, is_replayed) -> Backward`: a cheaper exact way to its gradients;
- `at` and `p`: the places and the norm of its margins, which `fit` logs;
- `needs_index`: it is called with `index=`, the positions of the samples in the training set;
- `capturable`: its passes may be captured in a CUDA graph (no device sync, no random numbers of the CPU);
- `stacking`: how a population evaluates it for all networks at once, see `Stacking`;
- `for_samples(samples) -> Loss`: the loss adapted to the number of training samples; called by `fit`;
- `for_augmented() -> Loss`: the loss adapted to inputs that are changed at random whenever they are drawn;
- `turns`: the losses of successive steps of a training, which are repeated in this order;
- `wrapped`: the loss that it wraps, whose `at` and `p` are logged (`losses.Wrapper` forwards everything).

The rest of the package reads these attributes through the functions below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, TypedDict, Unpack, cast, runtime_checkable

from torch import Tensor, nn

from widemargin.modules import ModelInputs
from widemargin.split_backward.backward import Backward

Stacking: TypeAlias = Literal["scores", "targets", "margins", "wide", "jacobian", "frobenius"]
"""How a loss or regularizer is evaluated for all networks of a population at once.

- scores: `of(scores, y)`;
- targets: `squared` with the `alpha` of every network;
- margins: one linearization, then the `penalize` of every network;
- wide: one second pass;
- jacobian: `of` with a classifier for every sample;
- frobenius: `of` with random directions for every network.
"""


@runtime_checkable
class Loss(Protocol):
    """A loss of every sample of a batch."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, /) -> Tensor:
        """One number per sample."""
        ...


class BackwardOptions(TypedDict, total=False):
    """Options of a fast backward, see `MarginLoss.backward`."""

    scale: float | Tensor
    memory: int | None
    is_replayed: bool


@runtime_checkable
class FastBackward(Protocol):
    """The method `backward` of a loss."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, /, **options: Unpack[BackwardOptions]) -> Backward:
        """Add to `.grad` what `(scale * loss(model, x, y).mean()).backward()` adds."""
        ...


def fast_backward(loss: object) -> FastBackward | None:
    """The `backward` of `loss`, or None where its gradients are autograd's."""
    return cast("FastBackward | None", _own(loss, "backward"))


def margin_backward(
    model: nn.Module, loss: Loss, x: ModelInputs, y: Tensor, **options: Unpack[BackwardOptions]
) -> Backward:
    """`loss.backward(model, x, y)`, of a `MarginLoss` or another loss with a `backward`, see `MarginLoss.backward`."""
    backward = fast_backward(loss)
    if backward is None:
        raise TypeError(f"loss is a {type(loss).__name__}, expected a MarginLoss, or a loss with a backward method")
    return backward(model, x, y, **options)


def places_of(loss: object) -> tuple[str, ...] | None:
    """The places of the margins of `loss`, or None where it has no margins."""
    at: tuple[str, ...] | None = getattr(innermost(loss), "at", None)
    return None if norm_of(loss) is None else at


def norm_of(loss: object) -> float | None:
    """The norm p of the margins of `loss`, or None where it has no margins."""
    inner = innermost(loss)
    p: float | None = getattr(inner, "p", None)
    return p if hasattr(inner, "at") else None  # a p alone is a setting of something else


def needs_index(loss: object) -> bool:
    """Whether `loss` is called with the positions of the samples in the training set."""
    return bool(getattr(loss, "needs_index", False))


def is_capturable(part: object) -> bool:
    """Whether the passes of a loss or regularizer may be captured in a CUDA graph."""
    return bool(_own(part, "capturable"))


def stacking_of(part: object) -> Stacking | None:
    """How a loss or regularizer is evaluated for a population; None: network by network.

    A subclass that overrides the values is evaluated network by network, except for the `of` of a loss of scores.
    """
    values = ("__call__",) if getattr(part, "stacking", None) == "scores" else ("__call__", "of")
    return cast("Stacking | None", _own(part, "stacking", values))


def for_samples(loss: Loss, samples: int | None) -> Loss:
    """`loss` adapted to the number of training samples; `loss` itself if it does not depend on it or it is unknown."""
    # not `_own`: `dataclasses.replace` keeps the subclass
    own: Callable[[int], Loss] | None = getattr(loss, "for_samples", None)
    return loss if own is None or samples is None else own(samples)


def for_augmented(loss: Loss) -> Loss:
    """`loss` adapted to inputs that are changed at random; `loss` itself if it does not depend on that."""
    own: Callable[[], Loss] | None = getattr(loss, "for_augmented", None)
    return loss if own is None else own()


def turns_of(loss: Loss) -> tuple[Loss, ...]:
    """The losses of successive steps, which `fit` takes in turn; `loss` alone where it is the same in every step."""
    turns: tuple[Loss, ...] | None = getattr(loss, "turns", None)
    return turns or (loss,)


def innermost(loss: object) -> object:
    """`loss` without its wrappers."""
    while (inner := getattr(loss, "wrapped", None)) is not None:
        loss = inner
    return loss


def values_of(loss: Loss, model: nn.Module, x: ModelInputs, y: Tensor, index: Tensor | None = None) -> Tensor:
    """`loss(model, x, y)`, with the positions `index` of the samples where the loss needs them."""
    values = loss(model, x, y, index=index) if needs_index(loss) else loss(model, x, y)  # type: ignore[call-arg]
    if not isinstance(values, Tensor):
        raise TypeError(f"loss returned a {type(values).__name__}, expected a tensor [batch] or a single number")
    return values


def _own(loss: object, name: str, values: tuple[str, ...] = ("__call__", "of")) -> object:
    """`getattr(loss, name)`, or None if a subclass of the class that defines `name` overrides a method in `values`."""
    if name not in getattr(loss, "__dict__", {}):
        for cls in type(loss).__mro__:
            if name in vars(cls):
                break
            if not vars(cls).keys().isdisjoint(values):
                return None
    return getattr(loss, name, None)
