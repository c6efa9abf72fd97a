"""`widemargin train`: train a network with a margin, measure it, and show it on a page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widemargin import __version__, registry
from widemargin._io.optional import EXTRAS, check_installed, is_installed
from widemargin.cli import arms, statistics
from widemargin.cli.console import complain, notice, out, printable, text
from widemargin.cli.devices import device as device_of
from widemargin.cli.errors import about
from widemargin.cli.measure import check_fits, measured, parse_classes
from widemargin.cli.networks import parse_settings, resolve
from widemargin.cli.options import DATA, RUNNING, DataName, DataRoot, Device, Model, Set, Weights
from widemargin.cli.session import SESSION
from widemargin.registry import LossName, OptimizerName, ScheduleName

if TYPE_CHECKING:
    from widemargin.data import Data
    from widemargin.margins import Measurement
    from widemargin.report.schema import ArmResult
    from widemargin.training import Fit

LOSS, OPTIMIZER, RESULTS = "Loss", "Optimizer", "Results"


def _number(help: str, panel: str, metavar: str = "X", **limits: Any) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=panel, **limits)


def train(
    model: Model,
    data: DataName,
    loss: Annotated[
        LossName, typer.Option(help="What is minimised: large-margin is elsayed's, odn the band.", rich_help_panel=LOSS)
    ] = LossName.large_margin,
    set_: Set = None,
    weights: Weights = None,
    seed: Annotated[
        int, _number("Seed of the weights, the samples, the order and all draws.", RUNNING, "N", min=0)
    ] = 0,
    count: Annotated[int | None, _number("Train on N samples drawn from the training set.", DATA, "N", min=1)] = None,
    data_root: DataRoot = None,
    gamma: Annotated[
        float | None, _number("γ, the margin that costs nothing (large-margin, odn-hinge, hinge).", LOSS)
    ] = None,
    r: Annotated[float | None, _number("r, the middle of the band (odn).", LOSS)] = None,
    theta: Annotated[float | None, _number("θ, half the width of the band (odn).", LOSS)] = None,
    mu: Annotated[float | None, _number("μ, the cost of margins above the band (odn).", LOSS)] = None,
    alpha: Annotated[float | None, _number("α, the margin that is aimed at (target).", LOSS)] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Where the margin is taken, and measured: input, output or the name of a module; as often as needed.",
            rich_help_panel=LOSS,
        ),
    ] = None,
    p: Annotated[float | None, _number("The l_p norm of the margin, from 1 to inf.", LOSS, "P")] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="Against how many of the strongest other classes.", rich_help_panel=LOSS),
    ] = None,
    add_cross_entropy: Annotated[
        float | None, _number("Weight of a cross-entropy term beside the margin.", LOSS)
    ] = None,
    as_printed: Annotated[
        bool,
        typer.Option(
            "--as-printed", metavar="", help="The papers' form, not the scale-free one.", rich_help_panel=LOSS
        ),
    ] = False,
    jacobian: Annotated[float, _number("Weight of sokolic's Jacobian regularizer.", LOSS, min=0.0)] = 0.0,
    weight_decay: Annotated[float, _number("Weight of the squares of the weights.", LOSS, min=0.0)] = 0.0,
    optimizer: Annotated[
        OptimizerName, typer.Option(help="How steps are taken.", rich_help_panel=OPTIMIZER)
    ] = OptimizerName.adam,
    lr: Annotated[float | None, _number("Learning rate; by default 0.001 for adam, else 0.01.", OPTIMIZER)] = None,
    momentum: Annotated[float | None, _number("By default 0.9 for sgd, 0 for rmsprop.", OPTIMIZER)] = None,
    schedule: Annotated[
        ScheduleName, typer.Option(help="Learning rate over time.", rich_help_panel=OPTIMIZER)
    ] = ScheduleName.constant,
    epochs: Annotated[int, _number("Passes over the data.", OPTIMIZER, "N", min=1)] = 20,
    batch_size: Annotated[int, _number("Samples of a step.", OPTIMIZER, "N", min=1)] = 128,
    device: Device = "auto",
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Curves for TensorBoard.", rich_help_panel=RESULTS)
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where the files go. A training that was begun there with the same options is continued.",
            rich_help_panel=RESULTS,
        ),
    ] = Path("runs/train"),
) -> None:
    r"""Train a network with a margin, measure it on the test set, and write a page.

    Files: weights.safetensors, history.json, margins.parquet, summary.json,
    page.html, and a checkpoint, from which the same command goes on after it
    was stopped, with the same result.

    [bold]Examples[/bold]

    The large-margin loss at two places, against cross-entropy:

      widemargin train --model elsayed-mnist-cnn --data mnist-5k \
          --loss large-margin --gamma 1 --at input --at conv2 --out runs/wide
      widemargin train --model elsayed-mnist-cnn --data mnist-5k \
          --loss cross-entropy --out runs/plain

    Your own network, build() in nets.py, as odn prints its loss:

      widemargin train --model nets:build --data cifar10 --loss odn \
          --r 1.2 --theta 0.7 --as-printed --optimizer sgd --lr 0.01
    """
    from safetensors.torch import save_model

    from widemargin import norms
    from widemargin._io.files import write_whole
    from widemargin._io.provenance import provenance
    from widemargin.data import Samples, load, subset
    from widemargin.places import INPUT, check_places
    from widemargin.report import page
    from widemargin.training import Devices, Measure, TensorBoard, TrainingStopped, fit

    if p is not None:
        with about("--p"):
            norms.check_p(p)
    settings = parse_settings(set_ or [])
    places = tuple(at) if at else None
    options = {
        "gamma": gamma,
        "r": r,
        "theta": theta,
        "mu": mu,
        "alpha": alpha,
        "at": places,
        "p": p,
        "classes": None if classes is None else parse_classes(classes),
        "cross_entropy": add_cross_entropy,
        "stabilize": "--as-printed" if as_printed else None,
    }
    minimised = _loss(loss, options)
    weighted = {"jacobian": jacobian, "weight-decay": weight_decay}
    regularizers = registry.regularizers([{"name": name, "weight": weight} for name, weight in weighted.items()])
    steps = _optimizer(optimizer, lr, momentum)
    _check_installed()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--out is {str(folder)!r}, which is a file, expected a folder")
    chosen = device_of(device)
    network = resolve(model, settings=settings, weights=weights, seed=seed).to(chosen)
    with about("--at"):
        check_places(network, at or [INPUT])
    with about("--data"):
        found = load(data, root=data_root or SESSION.get().data_root)
    part = found.train
    if count is not None:
        with about("--count"):
            if not isinstance(part, Samples):
                raise TypeError(f"--data {data} is read as it is needed, so no samples can be drawn from it")
            part = subset(part, count=count, seed=seed)
    check_fits(network, found.test, model, data)
    with about("--out"):
        folder.mkdir(parents=True, exist_ok=True)

    start = time.monotonic()
    try:
        result = fit(
            network,
            part,
            loss=minimised,
            regularizers=regularizers,
            optimizer=steps,
            schedule=registry.schedule({"name": schedule, "unit": "steps"}),
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            validation=found.test,
            callbacks=[Measure(at=places, p=p), *([] if tensorboard is None else [TensorBoard(tensorboard)])],
            devices=Devices.of(chosen),
            checkpoint=folder / "checkpoint",
        )
    except TrainingStopped as stopped:
        complain(str(stopped))
        raise typer.Exit(1) from None
    seconds = time.monotonic() - start

    norm = getattr(minimised, "p", 2.0) if p is None else p
    margins = measured(network, found.test, at=places or getattr(minimised, "at", None), p=norm, batch_size=256)
    origin = {
        "model": model,
        "set": [printable(pair) for pair in set_ or []],
        "start": None if weights is None else printable(weights),
        "data": data,
        "training samples": _count(part),
        "loss": str(minimised),
        "regularizers": [str(one) for one in regularizers],
        "optimizer": str(steps),
        "schedule": schedule.value,
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "device": str(chosen),
        "widemargin": __version__,
    }
    margins = dataclasses.replace(margins, settings={**origin, **margins.settings})
    written = [
        write_whole(folder / "weights.safetensors", lambda path: save_model(network, str(path))),
        result.history.write(folder / "history.json"),
        *margins.write(folder),
    ]
    title = f"{model} on {data}, {loss.value}"
    if is_installed(*EXTRAS["report"]):
        shown = {
            "title": title,
            "subtitle": f"{_count(part)} samples to train on, {len(margins):,} to test on; seed {seed}",
            "norm": arms.norm(norm),
            "arms": [_arm(loss.value, margins, found, result, origin, seconds)],
            "settings": {key: value for key, value in origin.items() if value not in (None, [])},
            **{key: provenance(str(chosen))[key] for key in ("versions", "hardware")},
        }
        written.append(page.write(folder / "page.html", shown))
    else:
        notice("no page.html, which needs more packages: pip install 'widemargin[report]'")

    console = out()
    console.print(text(f"{title}: {len(margins)} test samples, accuracy {100 * margins.accuracy:.2f} %", "bold"))
    console.print(statistics.by_place(margins))
    for path in written:
        console.print(text(f"wrote {path}"), soft_wrap=True)


def _loss(name: LossName, options: Mapping[str, Any]) -> Any:
    """The loss with the options that were given; `at` and `p` are used for measuring too, so every loss allows them."""
    given = {key: value for key, value in options.items() if value is not None}
    flags = {"stabilize": "--as-printed", "cross_entropy": "--add-cross-entropy"}
    values: dict[str, Any] = {"name": name}
    for key, value in given.items():
        losses = registry.losses_with(key)
        if name in losses:
            values[key] = None if key == "stabilize" else value
        elif key not in ("at", "p"):
            raise ValueError(f"{flags.get(key, f'--{key}')} is not for --loss {name}, but for {', '.join(losses)}")
    return registry.loss(values)


def _optimizer(name: OptimizerName, lr: float | None, momentum: float | None) -> Any:
    if name is OptimizerName.adam:
        if momentum is not None:
            raise ValueError("--momentum is not for --optimizer adam, but for sgd and rmsprop")
        return registry.optimizer({"name": name, "lr": 0.001 if lr is None else lr})
    usual = 0.9 if name is OptimizerName.sgd else 0.0
    momentum = usual if momentum is None else momentum
    return registry.optimizer({"name": name, "lr": 0.01 if lr is None else lr, "momentum": momentum})


def _arm(
    name: str, margins: Measurement, found: Data[Any], result: Fit, origin: Mapping[str, Any], seconds: float
) -> ArmResult:
    return arms.arm(
        name,
        margins,
        inputs=getattr(found.test, "x", None),
        bounds=found.bounds,
        classes=found.classes,
        note=" + ".join((origin["loss"], *origin["regularizers"])),
        history=arms.history(result.history.rows),
        seconds=round(seconds, 1),
    )


def _count(part: object) -> str:
    return f"{len(part):,}" if isinstance(part, Sized) else "streamed"


def _check_installed() -> None:
    """What the command needs at its end is known before the work, not after it."""
    if not is_installed("lightning"):
        check_installed("lightning_fabric", purpose="training")
    check_installed("pyarrow", purpose="writing margins.parquet")
