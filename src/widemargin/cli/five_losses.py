"""The demo: one small network trained with five losses on 250 images, with the same budget for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from widemargin import attacks, losses, margins, models, regularizers, training
from widemargin._io import provenance
from widemargin.cli import arms
from widemargin.data import Samples, load, subset
from widemargin.losses.protocol import Loss
from widemargin.margins.measurement import accuracy

if TYPE_CHECKING:
    from widemargin.report.schema import ArmResult, Result, Sized

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


def run(*, epochs: int, seed: int, sizes: Sequence[int] = (), told: Callable[[str], None]) -> Result:
    """Train and measure all of them, on `sizes` images too; `told` hears of each network that is done."""
    every, test = split(seed, max([IMAGES, *sizes]))
    train = every.select(torch.arange(min(IMAGES, len(every))))  # the first images of a larger set are the smaller set
    with _one_thread():
        trained = []
        for method in METHODS:
            made = _arm(method, train, test, epochs=epochs, seed=seed, told=told)
            if sizes:
                made["sizes"] = _against_data(method, made, every, test, sizes, epochs=epochs, seed=seed, told=told)
            trained.append(made)
    origin = provenance.provenance()
    parameters = sum(p.numel() for p in models.mnist_cnn(**NETWORK).parameters())
    return {
        "title": f"Five losses on {IMAGES} images",
        "subtitle": f"mnist-5k: {len(train)} images to train on, {len(test):,} to test on; seed {seed}",
        "norm": "l_2",
        "attack": {"name": "FGSM", "norm": "l_inf", "samples": ATTACKED, "shown": list(SHOWN)},
        "arms": trained,
        "settings": {
            "data": "mnist-5k",
            "training images": f"{len(train)}, as many of each class",
            "test images": len(test),
            "network": f"elsayed-mnist-cnn with widths {NETWORK['widths']} and hidden {NETWORK['hidden']}",
            "parameters": parameters,
            "optimizer": "Adam, lr " + ", ".join(f"{method.lr:g} ({method.label})" for method in METHODS),
            "epochs": epochs,
            "batch size": BATCH,
            "seed": seed,
            "attack": f"FGSM on {ATTACKED:,} of the test images, pixels kept in [0, 1]",
        },
        "versions": {**origin["versions"], "commit": origin["commit"] or "unknown"},
        "hardware": {**origin["hardware"], "threads": 1},
    }


def split(seed: int, images: int = IMAGES) -> tuple[Samples, Samples]:
    """Images of all 5,000 to train on, as many of each class, and the others to test on."""
    data = load("mnist-5k")
    every = Samples(torch.cat([data.train.x, data.test.x]), torch.cat([data.train.y, data.test.y]))
    train = subset(every, count=images, seed=seed, balanced=True)
    others = torch.ones(len(every), dtype=torch.bool)
    others[train.index] = False
    return train, every.select(others.nonzero()[:, 0])


def fit(
    method: DemoMethod,
    train: Samples,
    *,
    epochs: int,
    seed: int,
    measure: training.Measure,
    validation: Samples | None = None,
) -> training.Fit:
    """The network of one method, trained on `train`."""
    torch.manual_seed(seed)
    network = models.mnist_cnn(**NETWORK)  # the same first weights for each
    return training.fit(
        network,
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
    method: DemoMethod, train: Samples, test: Samples, *, epochs: int, seed: int, told: Callable[[str], None]
) -> ArmResult:
    started = time.perf_counter()
    watched = subset(test, count=WATCHED, seed=seed, balanced=True)
    every = max(1, epochs // 8)
    measure = training.Measure(every=every, at=("input",), p=2.0)
    fitted = fit(method, train, epochs=epochs, seed=seed, measure=measure, validation=watched)
    network = fitted.model
    seconds = time.perf_counter() - started
    told(f"{method.label}: trained in {seconds:.0f} s")
    measured = margins.measure(network, test, at=("input",), p=2.0)
    attacked = attacks.curve(network, subset(test, count=ATTACKED, seed=seed, balanced=True), EPSILONS)
    return arms.arm(
        method.name,
        measured,
        inputs=test.x,
        bounds=(0.0, 1.0),
        label=method.label,
        note=" + ".join(map(repr, (method.loss, *method.regularizers))),
        curve=arms.curve(attacked),
        history=arms.history(fitted.history.rows),
        seconds=round(seconds, 1),
    )


def _against_data(
    method: DemoMethod,
    made: ArmResult,
    every: Samples,
    test: Samples,
    sizes: Sequence[int],
    *,
    epochs: int,
    seed: int,
    told: Callable[[str], None],
) -> list[Sized]:
    """Accuracies on fewer and more images, by about as many steps as on the demo's own number of them."""
    found = {IMAGES: made.get("accuracy") or 0.0}
    for size in sorted({*sizes} - {IMAGES}):
        part = every.select(torch.arange(size))
        passes = max(1, round(epochs * -(-IMAGES // BATCH) / -(-size // BATCH)))
        network = fit(method, part, epochs=passes, seed=seed, measure=training.Measure(every=None)).model
        found[size] = accuracy(network, test)
        told(f"{method.label}: {found[size]:.1%} from {size} images")
    return [{"samples": size, "accuracy": found[size]} for size in sorted(found)]


@contextmanager
def _one_thread() -> Iterator[None]:
    """More threads gain little on batches this small, and lose much where another program wants the same cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
