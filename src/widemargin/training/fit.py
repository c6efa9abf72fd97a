"""Train a network: one loop, on any device, that can be killed at any moment and still gives the same weights."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from widemargin import norms, places
from widemargin.training.config import Task
from widemargin.training.devices import fabric as make_fabric
from widemargin.training.devices import quiet
from widemargin.training.history import History
from widemargin.training.loop import train
from widemargin.training.optimizers import Adam, MakesOptimizer
from widemargin.training.schedules import Constant, Schedule
from widemargin.training.stopping import Watch


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A trained network, what it was like while it trained, and the settings of the training in words."""

    model: nn.Module
    history: History
    settings: dict[str, str]


def fit(
    model: nn.Module,
    data: Any,
    *,
    loss: Any,
    epochs: int,
    regularizers: Sequence[Any] = (),
    optimizer: MakesOptimizer = Adam(),  # noqa: B008 (all three are frozen values)
    schedule: Schedule = Constant(),  # noqa: B008
    batch_size: int = 128,
    seed: int = 0,
    validation: Any = None,
    at: Sequence[str] | None = None,
    p: float | None = None,
    measure_every: int | None = 1,
    measure_on: int = 1000,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 500,
    watch: Watch | None = Watch(),  # noqa: B008
    accelerator: str = "auto",
    devices: int | str | list[int] = 1,
    strategy: str = "auto",
    precision: str | None = None,
    memory: int | None = None,
    graph: bool = True,
    tensorboard: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Fit:
    """Minimise mean loss + Σ regularizers over `data`, in place, and return the network with its history.

    For a seed the result is the same on a CPU every time, and the same up to rounding for any number of processes. The
    network comes back on the device it was trained on and in the mode it was in; the global generators of random
    numbers are left as they were.

    Args:
        model: any classifier.
        data: a name (its training set), `data.Data`, `data.Samples`, a pair of tensors, a `Dataset`, or a `DataLoader`,
            which keeps its own batches and order. Tensors are indexed on the device.
        loss: `loss(model, x, y)` → one number per sample, called with `index=` too (the samples' positions in the
            training set) if it says `needs_index`.
        epochs: passes over the data.
        regularizers: `regularizer(model, x, y)` → one number per sample, whose mean is added, or a single number.
        optimizer: `Sgd`, `Adam`, `RmsProp`, or any function of parameters that returns a torch optimizer.
        schedule: `Constant`, `Steps`, `Exponential`, `Cosine`, or any function (epoch, epochs) → factor.
        batch_size: samples of a step, of all processes together.
        seed: of the order of the samples and of every random number drawn on the way (not of the initial weights).
        validation: more data to measure on, a `Data`'s test set; nothing is chosen by it.
        at: places whose mean distance is measured; by default those of the loss, else the input.
        p: the norm of that distance; by default that of the loss, else 2.
        measure_every: epochs between two rows of the history, beside those of the start and the end; None: no rows.
        measure_on: at most so many training samples are measured, always the same; validation data are all measured.
        checkpoint: a folder. A training with the same settings and initial weights that was begun there is continued,
            bit for bit; a finished one is returned as it ended; any other one is an error.
        checkpoint_every: steps between two checkpoints; there is one at the end too.
        watch: when to stop a training that can't come to anything, see `Watch`; None: never.
        accelerator: Fabric's: "auto", "cpu", "cuda", "mps".
        devices: Fabric's: how many, or which.
        strategy: Fabric's, for more than one device: "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook".
        precision: None for that of the weights, or "bf16-mixed".
        memory: bytes of gradients that `margin_backward`, by which a `MarginLoss` is trained, may keep: 0 for two
            backward passes, None for no limit.
        graph: on a GPU, record the passes of a step as a CUDA graph and replay it (`training.graph`), where data are
            tensors and the loss is of this package; `Fit.settings` says whether. False for a network whose Python does
            something else from step to step.
        tensorboard: a folder for curves (extra `tensorboard`).
        progress: show a bar with the time left; by default on a terminal only.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, expected an nn.Module")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("model has no parameter that requires a gradient, so there is nothing to train")
    counts = {
        "epochs": epochs,
        "batch_size": batch_size,
        "measure_on": measure_on,
        "checkpoint_every": checkpoint_every,
    }
    for name, count in (counts | ({} if measure_every is None else {"measure_every": measure_every})).items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} is {count!r}, expected an integer >= 1")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory is {memory!r}, expected None or a number of bytes >= 0")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed is {seed!r}, expected an integer")
    for name, function in {"loss": loss, "optimizer": optimizer, "schedule": schedule}.items():
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"{name} is {function!r}, expected a value that can be called, such as Adam(lr=1e-3)")
    of_margins = hasattr(loss, "at") and hasattr(loss, "p")  # an attack's loss has a p of its own
    wanted = loss.at if at is None and of_margins else at
    norm = (loss.p if of_margins else 2.0) if p is None else p
    norms.check_p(norm)
    task = Task(
        model=model,
        data=data,
        loss=loss,
        epochs=epochs,
        regularizers=tuple(regularizers),
        optimizer=optimizer,
        schedule=schedule,
        batch_size=batch_size,
        seed=seed,
        validation=validation,
        at=None if wanted is None else places.check_places(model, wanted),
        p=float(norm),
        measure_every=measure_every,
        measure_on=measure_on,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        checkpoint_every=checkpoint_every,
        watch=watch,
        precision=precision,
        memory=memory,
        graph=graph,
        tensorboard=tensorboard,
        progress=progress,
    )
    fabric = make_fabric(accelerator=accelerator, devices=devices, strategy=strategy, precision=precision)
    with quiet():
        outcome = fabric.launch(functools.partial(train, task=task))
    if outcome.weights is not None:  # of other processes
        from safetensors.torch import load

        model.load_state_dict(load(outcome.weights))
    return Fit(model=model, history=History(tuple(outcome.rows)), settings=outcome.settings)
