"""The demo: one small network trained with five losses on 250 images, with the same budget for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from widemargin import attacks, losses, margins, models, regularizers, training
from widemargin.cli import arms
from widemargin.data import Samples, load, subset
from widemargin.losses.protocol import Loss
from widemargin.margins.measurement import accuracy

if TYPE_CHECKING:
    from widemargin.report.schema import ArmResult, Result

IMAGES, ATTACKED, WATCHED = 250, 500, 250  # to train on, to attack, to measure on while training
SHOWN = (0.05, 0.1)  # the ε of the table
EPSILONS = (0.0, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2)
NETWORK: dict[str, Any] = {"widths": (16, 32), "hidden": (128, 128)}
LAYERS = ("input", "pool1", "pool2", "relu3", "relu4", "output")
BATCH = 50


@dataclass(frozen=True, kw_only=True)
class DemoMethod:
    """A training method. Its numbers were chosen on images that the demo never sees (`benchmarks/demo_settings.py`)."""

    name: str
    label: str
    loss: Loss
    lr: float
    regularizers: tuple[Callable[..., torch.Tensor], ...] = ()


METHODS = (
    DemoMethod(name="cross-entropy", label="cross-entropy", loss=losses.CrossEntropy(), lr=4e-3),
    DemoMethod(name="hinge", label="hinge", loss=losses.MultiClassHinge(), lr=1e-3),
    DemoMethod(name="odn", label="ODN", loss=losses.odn(r=2.0, theta=1.0), lr=2e-3),
    DemoMethod(
        name="large-margin",
        label="all-layer large margin",
        loss=losses.large_margin(p=2.0, gamma=2.0, at=LAYERS, classes=1),
        lr=2e-3,
    ),
    DemoMethod(
        name="jacobian",
        label="cross-entropy + Jacobian",
        loss=losses.CrossEntropy(),
        regularizers=(regularizers.Jacobian(weight=1.0),),
        lr=2e-3,
    ),
)


def run(*, epochs: int, seed: int, sizes: Sequence[int] = (), log: Callable[[str], None]) -> Result:
    """Train and measure with each loss, on `sizes` images too; calls `log` after each network."""
    every, test = split(seed, max([IMAGES, *sizes]))
    with _one_thread():
        trained = [_arm(method, every, test, epochs=epochs, seed=seed, sizes=sizes, log=log) for method in METHODS]
    settings = {
        "data": "mnist-5k",
        "training images": f"{IMAGES}, as many of each class",
        "test images": len(test),
        "network": f"elsayed-mnist-cnn with widths {NETWORK['widths']} and hidden {NETWORK['hidden']}",
        "parameters": sum(p.numel() for p in models.mnist_cnn(**NETWORK).parameters()),
        "optimizer": "AdamW, lr " + ", ".join(f"{method.lr:g} ({method.label})" for method in METHODS),
        "epochs": epochs,
        "batch size": BATCH,
        "seed": seed,
        "threads": 1,
        "attack": f"FGSM on {ATTACKED:,} of the test images, pixels kept in [0, 1]",
    }
    result = {
        "title": f"Five losses on {IMAGES} images",
        "subtitle": f"mnist-5k: {IMAGES} images to train on, {len(test):,} to test on; seed {seed}",
        "norm": "l_2",
        "attack": {"name": "FGSM", "norm": "l_inf", "samples": ATTACKED, "shown": list(SHOWN)},
        "arms": trained,
        **arms.facts(settings),
    }
    return cast("Result", result)


def split(seed: int, images: int = IMAGES) -> tuple[Samples, Samples]:
    """Images of all 5,000 to train on, as many of each class, and the others to test on."""
    data = load("mnist-5k")
    every = Samples(torch.cat([data.train.x, data.test.x]), torch.cat([data.train.y, data.test.y]))
    train = subset(every, count=images, seed=seed, balanced=True)
    others = torch.ones(len(every), dtype=torch.bool)
    others[train.index] = False
    return train, every.select(others.nonzero()[:, 0])


def fit(
    method: DemoMethod, train: Samples, *, epochs: int, seed: int, measure: training.Measure, validation: Any = None
) -> training.Fit:
    """The network of one method, trained on `train`, from the same initial weights for each."""
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


def _arm(
    method: DemoMethod,
    every: Samples,
    test: Samples,
    *,
    epochs: int,
    seed: int,
    sizes: Sequence[int],
    log: Callable[[str], None],
) -> ArmResult:
    started = time.perf_counter()
    watched, attacked = (subset(test, count=count, seed=seed, balanced=True) for count in (WATCHED, ATTACKED))
    measure = training.Measure(every=max(1, epochs // 8), at=("input",), p=2.0)
    fitted = fit(method, _first(every, IMAGES), epochs=epochs, seed=seed, measure=measure, validation=watched)
    seconds = time.perf_counter() - started
    log(f"{method.label}: trained in {seconds:.0f} s")
    measured = margins.measure(fitted.model, test, at=("input",), p=2.0)
    accuracies = {IMAGES: measured.accuracy} if sizes else {}
    for size in sorted({*sizes} - {IMAGES}):
        passes = max(1, round(epochs * -(-IMAGES // BATCH) / -(-size // BATCH)))  # about as many steps
        network = fit(method, _first(every, size), epochs=passes, seed=seed, measure=training.Measure(every=None)).model
        accuracies[size] = accuracy(network, test)
        log(f"{method.label}: {accuracies[size]:.1%} from {size} images")
    curve = attacks.curve(fitted.model, attacked, EPSILONS)
    sized = [{"samples": size, "accuracy": accuracies[size]} for size in sorted(accuracies)]
    return arms.arm(
        method.name,
        measured,
        inputs=test.x,
        bounds=(0.0, 1.0),
        label=method.label,
        note=" + ".join(map(repr, (method.loss, *method.regularizers))),
        curve=[{"epsilon": row["epsilon"], "accuracy": row["accuracy"]} for row in curve],
        history=arms.history(fitted.history.rows),
        seconds=round(seconds, 1),
        sizes=sized,
    )


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
