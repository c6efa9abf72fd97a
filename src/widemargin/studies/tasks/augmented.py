"""Training of a classifier by `fit`, on changed images and in bfloat16 where it is asked for.

Settings:

    data          see `studies.samples.prepare`
    network       {"name": …} and the settings of `models.build`
    loss          see `registry.loss`
    regularizers  a list or a mapping, see `registry.regularizers`; those with one number a sample
    optimizer, schedule   as of `classify`
    epochs, batch
    steps         in place of epochs: as many epochs as come closest, at least one
    augmentation  {"crop": 4, "flip": True}, see `losses.wrappers.CropsAndFlips`; None: images are changed by the loss
                  itself, or not at all
    precision     "float32" (default), or "bfloat16": autocast
    channels_last whether a GPU stores images pixel by pixel, which tensor cores prefer; False by default
    measure       as of `classify`
    watch         in the final stage, distances over the training, see `studies.distance_watch`
    keep          whether weights are kept for other studies; True by default

Row: as of `classify` without `loss`, with the curves of `watch`, and `seconds` of the training, `images per second`,
and `CUDA graph`: whether the passes of a step were one. Data and augmentation are on the device. Loss and
regularizers see the same changed images.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import registry, training
from widemargin.checks import check_choice
from widemargin.losses.protocol import Loss, is_capturable
from widemargin.losses.shared_pass import values_and_penalties
from widemargin.losses.wrappers import CropsAndFlips
from widemargin.studies import networks, samples
from widemargin.studies.distance_watch import DistanceWatch
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys, digest, plain
from widemargin.studies.tasks.classify import Trained, evaluate
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import TrainingStopped
from widemargin.training.config import Regularizer

VERSION = 3  # since the weight of WideMargin falls with the square of the number of samples
_TRAINING = (
    *("data", "network", "loss", "regularizers", "optimizer", "schedule", "epochs", "steps", "batch"),
    *("augmentation", "precision", "channels_last"),
)


def run(trial: Trial, context: TrialContext) -> Row:
    """One training, or its weights from the cache, and the measurements."""
    given = trial.settings
    check_keys(given, (*_TRAINING, "measure", "watch", "keep"))
    parts = samples.prepare(given["data"], trial.seed, root=context.root, device=context.device)
    watch = None if trial.stage == "search" else given.get("watch")
    trained, note = _trained(given, trial.seed, context, parts, watch)
    row = evaluate(trial, parts, trained, lambda other: _other(other, trial.seed, context))
    watched = note.get("points", []) if watch is not None else []
    points = {"points": [*row.get("points", []), *watched]} if watched else {}
    return {**row, **points, **note.get("speed", {})}


@dataclass(frozen=True, kw_only=True)
class Regularized:
    """A loss plus regularizers, each one number a sample."""

    loss: Loss
    regularizers: tuple[Regularizer, ...]

    @property
    def capturable(self) -> bool:
        """Whether all of them may be captured in a CUDA graph."""
        return all(map(is_capturable, (self.loss, *self.regularizers)))

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The sum for every sample."""
        value, penalties = values_and_penalties(self.loss, self.regularizers, model, x, y)
        return value + torch.stack(penalties).sum(dim=0) if penalties else value


def fit_options(given: Settings, seed: int, epochs: int | None = None, *callbacks: training.Callback) -> dict[str, Any]:
    """Arguments of `fit` by the settings of a task; nothing is measured but by `callbacks`, and no bar is shown."""
    return {
        "optimizer": registry.optimizer(given["optimizer"]),
        "schedule": registry.schedule(given.get("schedule", {"name": "constant"})),
        "epochs": given["epochs"] if epochs is None else epochs,
        "batch_size": given["batch"],
        "seed": seed,
        "callbacks": [training.Measure(every=None), training.ProgressBar(show=False), *callbacks],
    }


def _other(settings: Settings, seed: int, context: TrialContext) -> nn.Module:
    parts = samples.prepare(settings["data"], seed, root=context.root, device=context.device)
    network = _trained(settings, seed, context, parts)[0].network
    if network is None:
        raise ValueError("the training of a network that was to be measured died")
    return network


def _trained(
    settings: Settings, seed: int, context: TrialContext, parts: samples.Parts, watch: Settings | None = None
) -> tuple[Trained, Row]:
    """The network, and a note: the `speed` of its training and the `points` of `watch`; from the cache where both are.

    The key has no `watch`: it changes no weight, so that studies that watch train for those that do not.
    """
    given = {key: settings[key] for key in _TRAINING if key in settings}
    key = digest(["augmented", VERSION, given, seed])
    build = functools.partial(networks.build, given["network"], seed)
    folder = context.weights if settings.get("keep", True) else None
    kept = networks.load(folder, key, build)
    each = -(-len(parts.train) // given["batch"])
    epochs = given["epochs"] if "epochs" in given else max(1, round(given["steps"] / each))
    if kept is not None and (watch is None or kept[1].get("watch") == plain(watch)):
        network, note = kept
        return Trained(network=network.to(context.device), died=None, loss=None, steps=epochs * each), dict(note)
    network = build()
    if given.get("channels_last") and torch.device(context.device).type == "cuda":  # crashes torch on some CPUs
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    watching = None if watch is None else DistanceWatch.of(parts, watch)
    callbacks = () if watching is None else (watching,)
    start = time.perf_counter()
    try:
        done = _fit(network, given, context, parts, fit_options(given, seed, epochs, *callbacks))
    except TrainingStopped as stopped:
        return Trained(network=None, died=str(stopped), loss=None, steps=0), {}
    seconds = time.perf_counter() - start
    speed = {
        "seconds": seconds,
        "images per second": epochs * len(parts.train) / seconds,
        "CUDA graph": done.settings.get("CUDA graph", "no"),
    }
    note = {"speed": speed} if watching is None else {"speed": speed, "watch": plain(watch), "points": watching.points}
    networks.save(folder, key, done.model, note)
    return Trained(network=done.model, died=None, loss=None, steps=epochs * each), note


def _fit(
    network: nn.Module, given: Settings, context: TrialContext, parts: samples.Parts, options: dict[str, Any]
) -> training.Fit:
    precision = given.get("precision", "float32")
    check_choice("precision", precision, ("float32", "bfloat16"))
    loss = registry.loss(given["loss"])
    if penalties := registry.regularizers(given.get("regularizers", ())):
        loss = Regularized(loss=loss, regularizers=penalties)
    changes = given.get("augmentation", {})
    device = torch.device(context.device)
    return training.fit(
        network,
        parts.train,
        loss=loss if changes is None else CropsAndFlips(loss=loss, **changes),
        **options,
        devices=training.Devices(
            accelerator=device.type,
            count=1 if device.index is None else [device.index],
            precision="bf16-mixed" if precision == "bfloat16" else None,
        ),
    )
