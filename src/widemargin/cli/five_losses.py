"""The demo: one small network trained with five losses on few images, with the same seeds and budget for each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch

from widemargin import attacks, losses, margins, models, regularizers, training
from widemargin.cli import arms
from widemargin.data import Samples, load, subset
from widemargin.losses.protocol import Loss
from widemargin.margins.measurement import accuracy

if TYPE_CHECKING:
    from widemargin.margins import Measurement
    from widemargin.report.schema import ArmResult, Attacked, Json, Result, Seeded

IMAGES, ATTACKED, WATCHED = 200, 500, 250  # to train on, to attack, to measure on while training
SETTINGS = 600  # images on which settings are chosen, and which the demo never sees
SHOWN = (0.05, 0.1)  # the ε of the table
EPSILONS = (0.0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2)
NETWORK: dict[str, Any] = {"size": 8, "widths": (16, 32), "hidden": (64, 64)}
LAYERS = ("input", "pool1", "pool2", "relu3", "relu4", "output")
BATCH, PGD_STEPS = 50, 20


@dataclass(frozen=True, kw_only=True)
class DemoMethod:
    """A training method. Its numbers were chosen on images that the demo never sees (`benchmarks/demo_settings.py`)."""

    name: str
    label: str
    loss: Loss
    lr: float
    regularizers: tuple[Callable[..., torch.Tensor], ...] = ()


METHODS = (
    DemoMethod(name="cross-entropy", label="cross-entropy", loss=losses.CrossEntropy(), lr=7e-3),
    DemoMethod(name="odn", label="ODN", loss=losses.odn(r=1.2, theta=0.7), lr=2e-3),
    DemoMethod(
        name="large-margin",
        label="large margin",
        loss=losses.large_margin(p=2.0, gamma=1.0, at=LAYERS, classes=1),
        lr=2e-3,
    ),
    DemoMethod(
        name="jacobian",
        label="Jacobian",
        loss=losses.CrossEntropy(),
        regularizers=(regularizers.Jacobian(weight=0.1),),
        lr=1e-2,
    ),
    DemoMethod(name="wide-margin", label="WideMargin", loss=losses.WideMargin(), lr=3e-3),
)


def run(*, epochs: int, seeds: Sequence[int], sizes: Sequence[int] = (), log: Callable[[str], None]) -> Result:
    """Train and measure with each loss and seed, on `sizes` images too; calls `log` after each loss."""
    every = images()[0]
    splits = {seed: split(every, seed, max([IMAGES, *sizes])) for seed in seeds}
    with _one_thread():
        trained = [_arm(method, splits, epochs=epochs, sizes=sizes, log=log) for method in METHODS]
    tested = len(splits[seeds[0]][1])
    settings = {
        "data": "digits",
        "training images": f"{IMAGES}, as many of each class",
        "test images": tested,
        "network": f"elsayed-mnist-cnn with widths {NETWORK['widths']} and hidden {NETWORK['hidden']}",
        "parameters": sum(p.numel() for p in models.mnist_cnn(**NETWORK).parameters()),
        "optimizer": "AdamW, lr " + ", ".join(f"{method.lr:g} ({method.label})" for method in METHODS),
        "epochs": epochs,
        "batch size": BATCH,
        "seeds": f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({', '.join(map(str, seeds))})",
        "threads": 1,
        "attack": f"PGD of {PGD_STEPS} steps on {ATTACKED:,} of the test images, pixels kept in [0, 1]",
    }
    result = {
        "title": f"Five losses on {IMAGES} images",
        "subtitle": f"digits: {IMAGES} images to train on, {tested:,} to test on; {_seeds(seeds)}",
        "norm": "l_2",
        "subject": METHODS[-1].name,
        "validation": "test",
        "attack": {"name": "PGD", "norm": "l_inf", "samples": ATTACKED, "shown": list(SHOWN)},
        "arms": trained,
        **arms.facts(settings),
    }
    return cast("Result", result)


def images() -> tuple[Samples, Samples]:
    """The images of the demo, and `SETTINGS` others on which settings are chosen, as many of each class."""
    data = load("digits")
    every = Samples(torch.cat([data.train.x, data.test.x]), torch.cat([data.train.y, data.test.y]))
    return split(every, 0, SETTINGS)[::-1]


def split(every: Samples, seed: int, count: int = IMAGES) -> tuple[Samples, Samples]:
    """`count` of the images, as many of each class, and the others."""
    every = Samples(every.x, every.y)  # positions count from here
    train = subset(every, count=count, seed=seed, balanced=True)
    others = torch.ones(len(every), dtype=torch.bool)
    others[train.index] = False
    return train, every.select(others.nonzero()[:, 0])


def fit(
    method: DemoMethod, train: Samples, *, epochs: int, seed: int, measure: training.Measure, validation: Any = None
) -> training.Fit:
    """The network of one method, trained on `train`; the initial weights depend on the seed alone."""
    torch.manual_seed(seed)
    return training.fit(
        models.mnist_cnn(**NETWORK),
        train,
        loss=method.loss,
        regularizers=method.regularizers,
        optimizer=training.AdamW(lr=method.lr),
        epochs=epochs,
        batch_size=BATCH,
        seed=seed,
        validation=validation,
        callbacks=[measure],
        devices=training.Devices(accelerator="cpu"),
    )


@dataclass(frozen=True, kw_only=True)
class _SeedRun:
    """The measurements of one network."""

    seed: int
    measured: Measurement
    curve: list[Attacked]
    history: list[dict[str, Json]]
    sizes: dict[int, float]


def _arm(
    method: DemoMethod,
    splits: dict[int, tuple[Samples, Samples]],
    *,
    epochs: int,
    sizes: Sequence[int],
    log: Callable[[str], None],
) -> ArmResult:
    started = time.perf_counter()
    networks = [_trained(method, *parts, epochs=epochs, seed=seed, sizes=sizes) for seed, parts in splits.items()]
    seconds = time.perf_counter() - started
    log(f"{method.label}: {len(networks)} network{'s' * (len(networks) > 1)} trained and attacked in {seconds:.0f} s")
    first = networks[0]
    distances = [one.measured.margins["input"] for one in networks]
    each: list[Seeded] = [
        {
            "seed": one.seed,
            "accuracy": one.measured.accuracy,
            "margin": arms.plain(one.measured.statistics["input"].mean),
            "curve": one.curve,
        }
        for one in networks
    ]
    shown = arms.arm(
        method.name,
        first.measured,
        inputs=next(iter(splits.values()))[1].x,
        bounds=(0.0, 1.0),
        label=method.label,
        note=" + ".join(map(repr, (method.loss, *method.regularizers))),
        curve=_means([one.curve for one in networks]),
        history=_means([one.history for one in networks]),
        seconds=round(seconds, 1),
        sizes=_means([[{"samples": n, "accuracy": a} for n, a in one.sizes.items()] for one in networks]),
    )
    shown["accuracy"] = statistics.fmean(one.measured.accuracy for one in networks)
    shown["margins"] = {"input": [arms.plain(m) for m in torch.cat(distances).tolist()]}
    if len(each) > 1:
        shown["seeds"] = each
    return shown


def _trained(
    method: DemoMethod, every: Samples, test: Samples, *, epochs: int, seed: int, sizes: Sequence[int]
) -> _SeedRun:
    watched, attacked = (subset(test, count=count, seed=seed, balanced=True) for count in (WATCHED, ATTACKED))
    measure = training.Measure(every=max(1, epochs // 8), at=("input",), p=2.0)
    fitted = fit(method, _first(every, IMAGES), epochs=epochs, seed=seed, measure=measure, validation=watched)
    measured = margins.measure(fitted.model, test, at=("input",), p=2.0)
    accuracies = {IMAGES: measured.accuracy} if sizes else {}
    for size in {*sizes} - {IMAGES}:
        passes = max(1, round(epochs * -(-IMAGES // BATCH) / -(-size // BATCH)))  # about as many steps
        network = fit(method, _first(every, size), epochs=passes, seed=seed, measure=training.Measure(every=None)).model
        accuracies[size] = accuracy(network, test)
    curve = attacks.curve(fitted.model, attacked, EPSILONS, attack=partial(attacks.pgd, steps=PGD_STEPS))
    return _SeedRun(
        seed=seed,
        measured=measured,
        curve=[{"epsilon": row["epsilon"], "accuracy": row["accuracy"]} for row in curve],
        history=arms.history(fitted.history.rows),
        sizes=dict(sorted(accuracies.items())),
    )


def _means(tables: Sequence[Sequence[Mapping[str, Json]]]) -> list[dict[str, Json]]:
    """The rows of tables that differ in their measured values alone, with the means of these."""
    return [{key: _mean([row[key] for row in rows]) for key in rows[0]} for rows in zip(*tables, strict=True)]


def _mean(values: list[Json]) -> Json:
    same = all(value == values[0] for value in values)
    return values[0] if same else None if None in values else arms.plain(statistics.fmean(values))


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"mean ± standard deviation over {len(seeds)} seeds"


def _first(samples: Samples, count: int) -> Samples:
    return samples.select(torch.arange(min(count, len(samples))))  # begins with the smaller sets


@contextmanager
def _one_thread() -> Iterator[None]:
    """More threads gain little on batches this small, and lose much where another program wants the same cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
