"""Training of a classifier by `fit` on cropped and mirrored images, in bfloat16 where it is asked for.

Settings:

    data          see `studies.samples.prepare`
    network       {"name": …} and the settings of `models.build`
    loss          see `registry.loss`
    regularizers  a list or a mapping, see `registry.regularizers`; those with one number a sample
    optimizer, schedule   as of `classify`
    epochs, batch
    augmentation  {"crop": 4, "flip": True}, see `losses.wrappers.CropsAndFlips`
    precision     "float32" (default), or "bfloat16": autocast
    channels_last whether a GPU stores images pixel by pixel, which tensor cores prefer; False by default
    measure       as of `classify`

Row: as of `classify` without `loss`, and `seconds` of the training, `images per second`, and `CUDA graph`: whether the
passes of a step were one. Data and augmentation are on the device. Loss and regularizers see the same changed images.
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
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys, digest
from widemargin.studies.tasks.classify import Trained, evaluate
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import TrainingStopped
from widemargin.training.config import Regularizer

VERSION = 3  # since the weight of WideMargin falls with the square of the number of samples
_TRAINING = (
    *("data", "network", "loss", "regularizers", "optimizer", "schedule", "epochs", "batch"),
    *("augmentation", "precision", "channels_last"),
)


def run(trial: Trial, context: TrialContext) -> Row:
    """One training, or its weights from the cache, and the measurements."""
    check_keys(trial.settings, (*_TRAINING, "measure"))
    parts = samples.prepare(trial.settings["data"], trial.seed, root=context.root, device=context.device)
    trained, speed = _trained(trial.settings, trial.seed, context, parts)
    return {**evaluate(trial, parts, trained, lambda other: _other(other, trial.seed, context)), **speed}


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


def fit_options(given: Settings, seed: int) -> dict[str, Any]:
    """Arguments of `fit` by the settings of a task; nothing is measured and no bar is shown."""
    return {
        "optimizer": registry.optimizer(given["optimizer"]),
        "schedule": registry.schedule(given.get("schedule", {"name": "constant"})),
        "epochs": given["epochs"],
        "batch_size": given["batch"],
        "seed": seed,
        "callbacks": [training.Measure(every=None), training.ProgressBar(show=False)],
    }


def _other(settings: Settings, seed: int, context: TrialContext) -> nn.Module:
    parts = samples.prepare(settings["data"], seed, root=context.root, device=context.device)
    network = _trained(settings, seed, context, parts)[0].network
    if network is None:
        raise ValueError("the training of a network that was to be measured died")
    return network


def _trained(settings: Settings, seed: int, context: TrialContext, parts: samples.Parts) -> tuple[Trained, Row]:
    given = {key: settings[key] for key in _TRAINING if key in settings}
    key = digest(["augmented", VERSION, given, seed])
    build = functools.partial(networks.build, given["network"], seed)
    kept = networks.load(context.weights, key, build)
    steps = given["epochs"] * -(-len(parts.train) // given["batch"])
    if kept is not None:
        network, note = kept
        return Trained(network=network.to(context.device), died=None, loss=None, steps=steps), note["speed"]
    network = build()
    if given.get("channels_last") and torch.device(context.device).type == "cuda":  # crashes torch on some CPUs
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    start = time.perf_counter()
    try:
        done = _fit(network, given, seed, context, parts)
    except TrainingStopped as stopped:
        return Trained(network=None, died=str(stopped), loss=None, steps=0), {}
    seconds = time.perf_counter() - start
    speed = {
        "seconds": seconds,
        "images per second": given["epochs"] * len(parts.train) / seconds,
        "CUDA graph": done.settings.get("CUDA graph", "no"),
    }
    networks.save(context.weights, key, done.model, {"speed": speed})
    return Trained(network=done.model, died=None, loss=None, steps=steps), speed


def _fit(network: nn.Module, given: Settings, seed: int, context: TrialContext, parts: samples.Parts) -> training.Fit:
    precision = given.get("precision", "float32")
    check_choice("precision", precision, ("float32", "bfloat16"))
    loss = registry.loss(given["loss"])
    if penalties := registry.regularizers(given.get("regularizers", ())):
        loss = Regularized(loss=loss, regularizers=penalties)
    device = torch.device(context.device)
    return training.fit(
        network,
        parts.train,
        loss=CropsAndFlips(loss=loss, **given.get("augmentation", {})),
        **fit_options(given, seed),
        devices=training.Devices(
            accelerator=device.type,
            count=1 if device.index is None else [device.index],
            precision="bf16-mixed" if precision == "bfloat16" else None,
        ),
    )
