"""Accuracy over the size of an attack."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, TypedDict, cast, runtime_checkable

import torch
from torch import Tensor, nn

from widemargin._io.progress import track
from widemargin.attacks.fgsm_pgd import fgsm, ifgsm, pgd
from widemargin.attacks.input_range import Bounds, check_bounds, into_bounds
from widemargin.attacks.noise import as_generator, gaussian
from widemargin.checks import check_floating, check_module, check_number, check_scores_and_labels, check_several
from widemargin.data import Data, batches, load
from widemargin.entry_checks import check_call, checked_by_caller
from widemargin.modules import arguments, cast_input, predict, predicted_labels, unwrap_ddp
from widemargin.probabilities import Outputs, read_model

_NAMES = ("fgsm", "ifgsm", "pgd", "gaussian")


@runtime_checkable
class Attack(Protocol):
    """A function that moves inputs: `attacks.fgsm`, `functools.partial(attacks.pgd, p=2.0)`, or any other.

    `bounds`, the range of the data, is passed only where the function takes an argument of that name.
    """

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, epsilon: float, /, *, bounds: Bounds) -> Tensor:
        """x̂ for inputs x and labels y."""


Own: TypeAlias = Callable[[nn.Module, Tensor, Tensor, float], Tensor]
"""An attack of your own, without `bounds`."""


class AttackRow(TypedDict):
    """Accuracy under attacks of one size."""

    attack: str
    box: Literal["none", "white", "black"]
    epsilon: float
    accuracy: float
    correct: int
    samples: int


def curve(
    model: nn.Module,
    data: object,
    epsilons: Sequence[float | int],
    *,
    attack: str | Attack | Own = "fgsm",
    source: nn.Module | None = None,
    bounds: Bounds | Literal["data"] = "data",
    seed: int = 0,
    batch_size: int = 256,
    read_as: Outputs = "logits",
    progress: bool | None = None,
) -> list[AttackRow]:
    """Accuracy of `model` on attacked inputs, a row for each ε: attack, box, epsilon, accuracy, correct, samples.

    elsayed, Figures 4 to 7 and 14 to 16: `box` is "white" where the inputs are made to fool `model` itself, "black"
    where they are made to fool another network, `source`, and "none" for noise.

    Args:
        model: the network whose accuracy is measured; both networks run in evaluation mode and are left unchanged.
        data: a name (its test set), `data.Data`, `data.Samples`, a pair (x, y) of tensors, NumPy arrays or pandas
            objects, a `Dataset`, a Hugging Face `datasets.Dataset` or a `DataLoader`.
        epsilons: sizes of the attack; the standard deviations for `"gaussian"`. 0 gives the accuracy without attack.
        attack: `"fgsm"`, `"ifgsm"`, `"pgd"`, `"gaussian"`, an `Attack` such as `partial(attacks.ifgsm, steps=20)`, or
            a function `(model, x, y, epsilon)` of your own, whose results are clipped to `bounds`.
        source: the network that the inputs are made on, by default `model`.
        bounds: the range of the data; `"data"`: that of a data set by name or a `Data`, (0, 1) for tensors.
        seed: of noise and of random starts, the same for each ε and whatever the batch size.
        batch_size: samples at a time (a `DataLoader` has its own).
        read_as: `"probabilities"` for networks that end in a softmax or sigmoid, see `margins.from_probabilities`.
        progress: show a bar; by default on a terminal only.
    """
    check_module(model)
    sizes = _check(epsilons, attack, source)
    data = load(data) if isinstance(data, str) else data
    if bounds == "data":
        bounds = data.bounds if isinstance(data, Data) else (0.0, 1.0)
    check_bounds(bounds)
    target = read_model(unwrap_ddp(model), read_as)
    maker = target if source is None or source is model else read_model(unwrap_ddp(source), read_as)
    moves = [_drawing(attack, as_generator("curve", seed)) for _ in sizes]
    correct, samples = [0] * len(sizes), 0
    found = batches(data, batch_size=batch_size)
    for x, y in track(found, "Attacking", progress=progress):
        x = arguments(maker, cast_input(maker, x))
        check_floating(x, "x", "[batch, ...]")
        y = y.to(x.device)
        if not samples:
            found.check_classes(predict(target, x[:1]))
            for network in dict.fromkeys((target, maker)):
                check_call(network, cast_input(network, x), y)
        samples += len(y)
        for i, (epsilon, move) in enumerate(zip(sizes, moves)):
            with checked_by_caller():
                moved = move(maker, x, y, epsilon, bounds=bounds)
            scores = predict(target, moved)
            labels = y.to(scores.device)
            found.check_classes(scores)
            check_scores_and_labels(scores, labels)
            correct[i] += int((predicted_labels(scores) == labels).sum())
    if not samples:
        raise ValueError("data has no samples, expected at least one batch")
    box: Literal["none", "white", "black"] = "none" if attack == "gaussian" else "white" if maker is target else "black"
    name = _name(attack)
    return [
        AttackRow(attack=name, box=box, epsilon=float(e), accuracy=n / samples, correct=n, samples=samples)
        for e, n in zip(sizes, correct)
    ]


def _check(epsilons: Sequence[float | int], attack: str | Attack | Own, source: nn.Module | None) -> list[float | int]:
    check_several("epsilons", epsilons, "[0.1, 0.2]")
    if source is not None:
        check_module(source, "source")
    sizes = list(epsilons)
    if not sizes:
        raise ValueError("epsilons is empty, expected at least one size such as 0.1")
    for epsilon in sizes:
        check_number("epsilons", epsilon, least=0.0)
    if attack not in _NAMES if isinstance(attack, str) else not callable(attack):
        raise ValueError(f"attack is {attack!r}, expected a function or one of {', '.join(map(repr, _NAMES))}")
    if attack == "gaussian" and source is not None:
        raise ValueError("source is given, but attack is 'gaussian', which uses no network")
    return sizes


def _drawing(attack: str | Attack | Own, generator: torch.Generator) -> Attack:
    """The attack, by its name where it is given by one, with its random numbers from `generator`."""
    if attack == "gaussian":
        return lambda _, x, __, epsilon, bounds: gaussian(x, epsilon, generator, bounds=bounds)
    if attack == "pgd":
        return functools.partial(pgd, seed=generator)
    if isinstance(attack, str):
        return fgsm if attack == "fgsm" else ifgsm
    return cast("Attack", attack) if _takes_bounds(attack) else _clipped(cast("Own", attack))


def _takes_bounds(attack: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(attack).parameters
    except (TypeError, ValueError):  # a builtin
        return True
    return "bounds" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _clipped(attack: Own) -> Attack:
    """An attack that does not know the range of the data, clipped to it as the others are."""

    def clipped(model: nn.Module, x: Tensor, y: Tensor, epsilon: float | int, *, bounds: Bounds) -> Tensor:
        return into_bounds(attack(model, x, y, epsilon), bounds)

    return clipped


def _name(attack: str | Attack | Own) -> str:
    if isinstance(attack, str):
        return attack
    if isinstance(attack, functools.partial):
        settings = ", ".join(f"{key}={value!r}" for key, value in attack.keywords.items())
        return f"{_name(attack.func)}({settings})"
    return str(getattr(attack, "__name__", attack))
