"""Training of a classifier, chosen by validation accuracy; the test set is read once, at the end.

Settings:

    data          see `studies.samples.prepare`: name, validation, train or fraction, flips, test
    network       {"name": …} and the settings of `models.build`
    loss          see `registry.loss`
    regularizers  a list or a mapping, see `registry.regularizers`
    optimizer     {"name": "sgd", "lr": 0.01, "momentum": 0.9}
    schedule      {"name": "exponential", "factor": 0.9, "every": 0.04}, in shares of the training
    steps, batch  how many steps, of how many samples (None: of all)
    dtype         "float32" (default) or "float64"
    until         stop where the loss of a batch is below this
    gradient_clip the largest global norm of the gradients
    measure       what else is measured on test data in the final stage, a list; see `studies.measurements`
    keep          keep the weights of the search's networks too, for studies that search the same (those of final
                  trials with a `measure` are kept anyway)

Row: `validation` (accuracy), `loss` (of the last batch), `steps`; in the final stage also `accuracy` (on test data),
`train accuracy` (of at most 5,000 training samples, with their flipped labels if any) and what `measure` asks for.
A training whose scores are no longer finite `died` with a sentence, and counts with the accuracy of guessing.

One network is trained as a population of one, so that any number at once gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from widemargin import population, registry
from widemargin.margins.measurement import accuracy
from widemargin.studies import measurements, networks, samples
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys, digest
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import TrainingStopped

VERSION = 1
_TRAINING = (
    *("data", "network", "loss", "regularizers", "optimizer", "schedule", "steps", "batch", "dtype", "until"),
    "gradient_clip",
)
_SEEN_OF_TRAIN = 5000


def run(trial: Trial, context: TrialContext) -> Row:
    """One trial."""
    return next(many([trial], context))[1]


def many(trials: Sequence[Trial], context: TrialContext) -> Iterator[tuple[Trial, Row]]:
    """Trials of one `alike` as a population."""
    jobs = []
    for trial in trials:
        check_keys(trial.settings, (*_TRAINING, "measure", "keep"))
        keep = bool(trial.settings.get("measure") or trial.settings.get("keep"))
        jobs.append(_Job.of(trial.settings, trial.seed, context, keep=keep))
    for trial, job, trained in zip(trials, jobs, _train(jobs, context)):
        yield trial, evaluate(trial, job.parts, trained, partial(train_one, seed=trial.seed, context=context))


def alike(trial: Trial) -> str:
    """Equal for trials that train together: architecture, length, batch, optimizer up to its rate, size of the data."""
    given = dict(trial.settings)
    optimizer = {key: value for key, value in given["optimizer"].items() if key != "lr"}
    size = {key: given["data"].get(key) for key in ("name", "shape", "pca", "train", "fraction", "validation")}
    loss = {key: given["loss"].get(key) for key in ("name", "at", "p", "classes", "scores", "second_order")}
    keys = ("network", "regularizers", "schedule", "steps", "batch", "dtype", "until", "gradient_clip")
    shared = [given.get(key) for key in keys]
    return digest([shared, optimizer, size, loss])


def train_one(settings: Settings, seed: int, context: TrialContext) -> nn.Module:
    """The network of these settings and this seed, from the cache of weights where it is, else trained."""
    return _network(_train([_Job.of(settings, seed, context)], context)[0])


def train_double(trial: Trial, own: Sequence[str], context: TrialContext) -> tuple[nn.Module, samples.Parts]:
    """The trained network of a trial in float64, and its samples; `own` are the settings of other tasks."""
    training = {key: value for key, value in trial.settings.items() if key not in own}
    job = _Job.of(training, trial.seed, context)
    return _network(_train([job], context)[0]).double(), job.parts


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained network, or why it died, the loss of its last batch, and its steps."""

    network: nn.Module | None
    died: str | None
    loss: float | None
    steps: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Job:
    """The settings that a network depends on, its seed and samples, and whether its weights are kept."""

    settings: Settings
    seed: int
    parts: samples.Parts
    keep: bool

    @classmethod
    def of(cls, settings: Settings, seed: int, context: TrialContext, *, keep: bool = True) -> _Job:
        needed = {key: settings[key] for key in _TRAINING if key in settings}
        parts = samples.prepare(settings["data"], seed, root=context.root, device=context.device)
        return cls(settings=needed, seed=seed, parts=parts, keep=keep)

    @property
    def key(self) -> str:
        """Names the trained network."""
        return digest(["classify", VERSION, self.settings, self.seed])

    def network(self) -> nn.Module:
        """The network before its first step."""
        dtype = {"float32": torch.float32, "float64": torch.float64}[self.settings.get("dtype", "float32")]
        return networks.build(self.settings["network"], self.seed).to(dtype)


def _network(trained: Trained) -> nn.Module:
    if trained.network is None:
        raise ValueError(f"the training of a network that was to be measured died: {trained.died}")
    return trained.network


def evaluate(trial: Trial, parts: samples.Parts, trained: Trained, networks: Callable[[Settings], nn.Module]) -> Row:
    """The row of a trained network; `networks` trains that of other settings and the same seed, for attacks."""
    network = trained.network
    tested = {"validation": parts.validation}
    if trial.stage != "search":
        tested |= {"train accuracy": samples.first(parts.train, _SEEN_OF_TRAIN), "accuracy": parts.test}
    row: Row = {"loss": trained.loss, "steps": trained.steps, "died": trained.died}
    for name, part in tested.items():
        row[name] = 1 / parts.classes if network is None else accuracy(network, part)
    if trial.stage == "search" or network is None:
        return row
    points: list[Row] = []
    subject = measurements.Subject(network=network, parts=parts, seed=trial.seed, networks=networks)
    for settings in trial.settings.get("measure", ()):
        measured = measurements.take(settings, subject)
        points += measured.pop("points", [])
        row.update(measured)
    return {**row, "points": points} if points else row


def _train(jobs: list[_Job], context: TrialContext) -> list[Trained]:
    """The trained networks, from the cache where they are."""
    done: dict[str, Trained] = {}
    for job in jobs:
        kept = networks.load(context.weights, job.key, job.network)
        if kept is not None:
            network, note = kept
            done[job.key] = Trained(network=network.to(context.device), died=None, **note)
    missing = list({job.key: job for job in jobs if job.key not in done}.values())
    if missing:
        for job, trained in zip(missing, _fit(missing, context)):
            done[job.key] = trained
            if job.keep and trained.network is not None:
                networks.save(context.weights, job.key, trained.network, {"loss": trained.loss, "steps": trained.steps})
    return [done[job.key] for job in jobs]


def _fit(jobs: list[_Job], context: TrialContext) -> list[Trained]:
    first = jobs[0].settings
    try:
        trained = population.fit(
            [job.network().to(context.device) for job in jobs],
            [job.parts.train for job in jobs],
            loss=[registry.loss(job.settings["loss"]) for job in jobs],
            regularizers=registry.regularizers(first.get("regularizers", ())),
            optimizer=[registry.optimizer(job.settings["optimizer"]) for job in jobs],
            seeds=[job.seed for job in jobs],
            chunk=1 if len(jobs) == 1 else None,
            device=context.device,
            **networks.fit_options(first),
        )
    except TrainingStopped as stopped:
        if len(jobs) == 1:
            return [Trained(network=None, died=str(stopped), loss=None, steps=0)]
        half = len(jobs) // 2  # one of them died: halves find out which, at little more than the cost of all once more
        return [*_fit(jobs[:half], context), *_fit(jobs[half:], context)]
    ends = zip(trained.networks, trained.losses, trained.steps)
    return [Trained(network=network, died=None, loss=loss, steps=steps) for network, loss, steps in ends]
