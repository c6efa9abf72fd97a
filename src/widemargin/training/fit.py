"""Training of one network on any device, resumable at any step with the same weights."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, get_args

from torch import Tensor, nn
from torch.optim import Optimizer

from widemargin import norms, places
from widemargin.checks import (
    check_callable,
    check_choice,
    check_count,
    check_module,
    check_number,
    check_seed,
    check_several,
    check_type,
    check_weights,
)
from widemargin.data import Data, Samples, load
from widemargin.data.opening import Opened, open_data
from widemargin.losses.protocol import Loss, norm_of, places_of
from widemargin.losses.score_criterion import as_loss
from widemargin.losses.wide_margin import WideMargin
from widemargin.modules import predict
from widemargin.probabilities import Outputs
from widemargin.training.callbacks import Callback, Measure, ProgressBar
from widemargin.training.checkpoint import Checkpoint
from widemargin.training.config import Devices, FitConfig, Regularizer, fabric, quiet, regularizers_of
from widemargin.training.history import History
from widemargin.training.loop import train
from widemargin.training.optimizers import AdamW, MakesOptimizer
from widemargin.training.schedules import Constant, Schedule
from widemargin.training.stopping import StopFailed

T = TypeVar("T", bound=Callback)


@dataclass(frozen=True, kw_only=True, repr=False)
class Fit:
    """A trained network, its history, the settings of the training in words, and the names of the classes, if any."""

    model: nn.Module
    history: History
    settings: dict[str, str]
    classes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        last = {str(row["split"]): row for row in self.history.rows}
        lines = [f"{type(self.model).__name__}, trained with {self.settings['loss']}"]
        for split, row in last.items():
            values = (f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, (int, float)))
            lines.append(f"  {split}: {', '.join(values)}")
        return "\n".join(lines)


def fit(
    model: nn.Module,
    data: object,
    *,
    loss: Loss | Callable[[Tensor, Tensor], Tensor] = WideMargin(),  # noqa: B008 (all four are frozen values)
    epochs: int,
    optimizer: MakesOptimizer = AdamW(),  # noqa: B008
    schedule: Schedule = Constant(),  # noqa: B008
    regularizers: Iterable[Regularizer] = (),
    batch_size: int = 128,
    seed: int = 0,
    validation: object = None,
    callbacks: Iterable[Callback] = (),
    gradient_clip: float | int | None = None,
    read_as: Outputs = "logits",
    devices: Devices = Devices(),  # noqa: B008
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Fit:
    """Minimise mean loss + Σ regularizers over `data`, in place, and return the network with its history.

    For a seed the result is the same on a CPU every time, and the same up to rounding for any number of processes
    (not with `WideMargin`, which takes statistics of the part of a batch that a process has). The network comes back on
    the device it was trained on and in the mode it was in; the states of the global random number generators are
    restored.

    Args:
        model: any classifier. If it is in training mode, parts of it in evaluation mode stay in that, such as a frozen
            backbone with BatchNorm. With BatchNorm, a last batch of one sample is joined to the one before it.
        data: a name (its training set), `data.Data`, `data.Samples`, a pair (x, y) of tensors, NumPy arrays or pandas
            objects, a `Dataset`, a Hugging Face `datasets.Dataset`, or a `DataLoader`, which keeps its own batches and
            order. Tensors are indexed on the device. Labels that are names become indices in sorted order.
        loss: `loss(model, x, y)` → one number per sample, called with `index=` too (the samples' positions in the
            training set) if it has `needs_index`; or a criterion of the scores such as `F.cross_entropy` and
            `nn.CrossEntropyLoss(label_smoothing=0.1)`. By default cross-entropy that widens the margins.
        epochs: passes over the data.
        optimizer: `SGD`, `AdamW`, `RMSprop`, `Nero`, `functools.partial(torch.optim.SGD, lr=…)`, a class of torch
            optimizers with its defaults, or any function of parameters that returns one.
        schedule: `Constant`, `Steps`, `Exponential`, `Cosine`, `WarmUp`, or any function (epoch, epochs) → factor.
        regularizers: `regularizer(model, x, y)` → one number per sample, whose mean is added, or a single number.
        batch_size: samples of a step, of all processes together.
        seed: of the order of the samples and of every random number during the training (not of the initial weights).
        validation: more data to measure, a `Data`'s test set; only `EarlyStopping` and `BestWeights` use the values.
        callbacks: see `training.callbacks`. `StopFailed()`, `Measure()` and `ProgressBar()` are added where no callback
            of their type is given.
        gradient_clip: the largest global norm of the gradients, as in `torch.nn.utils.clip_grad_norm_`.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid: losses and measurements read them as
            scores (`margins.from_probabilities`). A criterion of your own gets them as they are, except
            as the `base` of `WideMargin`, which gets scores.
        devices: devices, processes and precision.
        checkpoint: a folder, or `Checkpoint(folder, every=500)`. A training with the same settings and initial weights
            that was begun there is continued, bit for bit; a finished one is returned as it ended; any other one is an
            error.
    """
    _check_model(model)
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    check_seed(seed)
    loss = as_loss(loss)
    check_callable("optimizer", optimizer, "functools.partial(torch.optim.SGD, lr=0.1)", makes=Optimizer)
    check_callable("schedule", schedule, "training.Cosine()")
    _check_options(read_as, gradient_clip, callbacks, devices)
    opened = _opened(model, data)
    given = list(callbacks)
    stop_failed, measure = _taken(given, StopFailed()), _taken(given, Measure())
    bar = _taken(given, ProgressBar())
    at = places_of(loss) if measure.at is None else measure.at
    p = next(norm for norm in (measure.p, norm_of(loss), 2.0) if norm is not None)
    norms.check_p(p)
    config = FitConfig(
        model=model,
        data=_kept(data, opened),
        loss=loss,
        epochs=epochs,
        optimizer=optimizer,
        schedule=schedule,
        regularizers=regularizers_of(regularizers),
        batch_size=batch_size,
        seed=seed,
        validation=_validation(validation, opened),
        callbacks=(stop_failed, measure, *given, bar),
        gradient_clip=gradient_clip,
        read_as=read_as,
        devices=devices,
        checkpoint=Checkpoint(checkpoint) if isinstance(checkpoint, (str, os.PathLike)) else checkpoint,
        measure=measure,
        stop_failed=stop_failed,
        at=None if at is None else places.check_places(model, at),
        p=float(p),
    )
    with quiet():
        outcome = fabric(devices).launch(functools.partial(train, config=config, caller=os.getpid()))
    if outcome.weights is not None:  # of other processes
        from safetensors.torch import load

        model.load_state_dict(load(outcome.weights))
    return Fit(model=model, history=History(tuple(outcome.rows)), settings=outcome.settings, classes=opened.classes)


def _kept(data: object, opened: Opened) -> object:
    """Data as they are described in checkpoints: by name, or as they were opened."""
    return data if isinstance(data, (str, Data)) else opened.source


def _validation(data: object, train: Opened) -> object:
    """The validation data, whose names of classes have the indices that they have in training."""
    if data is None:
        return None
    data = load(data) if isinstance(data, str) else data
    try:
        return data if isinstance(data, Data) else open_data(data, classes=train.classes or None).source
    except (TypeError, ValueError) as error:
        raise type(error)(f"validation: {error}") from error


def _check_options(read_as: Outputs, gradient_clip: float | int | None, callbacks: object, devices: object) -> None:
    check_several("callbacks", callbacks, "(training.EarlyStopping(),)")
    check_type("devices", devices, Devices, "training.Devices(…)")
    check_choice("read_as", read_as, get_args(Outputs))
    if gradient_clip is not None:
        check_number("gradient_clip", gradient_clip, above=0.0)


def _check_model(model: object) -> None:
    check_module(model)
    assert isinstance(model, nn.Module)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("model has no parameter that requires a gradient, so there is nothing to train")
    check_weights(model)


def _opened(model: nn.Module, data: object) -> Opened:
    """The training data; raises where names of classes were collected from labels and do not fit the scores."""
    opened = open_data(data, split="train")
    if not opened.are_complete and isinstance(opened.source, Samples):
        opened.check_classes(predict(model, opened.source.x[:1]))
    return opened


def _taken(callbacks: list[Callback], default: T) -> T:
    """The callback of the type of `default`, removed from `callbacks`; `default` where there is none."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise TypeError(f"callbacks has a {type(callback).__name__}, expected objects of training.Callback")
    same = [callback for callback in callbacks if isinstance(callback, type(default))]
    if len(same) > 1:
        raise ValueError(f"callbacks has {len(same)} of {type(default).__name__}, expected at most one")
    callbacks[:] = [callback for callback in callbacks if not isinstance(callback, type(default))]
    return same[0] if same else default
