"""`widemargin train`: train a network with wide margins, measure it, and write a page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widemargin import __version__, registry
from widemargin._io.files import check_writable
from widemargin._io.optional import check_installed, is_installed
from widemargin.cli import arms, options, tables
from widemargin.cli.console import complain, out, text, wrote
from widemargin.cli.errors import about
from widemargin.cli.inputs import Inputs, in_memory, load_inputs, make_folder, measure_margins, parse_classes
from widemargin.cli.options import Number, data_option, option, result_option
from widemargin.cli.sources import DataSource
from widemargin.registry import LossName, OptimizerName, ScheduleName

if TYPE_CHECKING:
    from widemargin.losses.protocol import Loss
    from widemargin.margins import Measurement
    from widemargin.report.schema import Json
    from widemargin.training import Fit
    from widemargin.training.optimizers import MakesOptimizer

loss_option = partial(option, panel="Loss")
optimizer_option = partial(option, panel="Optimizer")


def train(
    model: options.Model,
    data: options.DataName,
    loss: Annotated[
        LossName,
        loss_option(
            "wide-margin, which needs no settings; large-margin (elsayed), odn, odn-hinge, cross-entropy, "
            "generalized-cross-entropy, hinge, soft-hinge or target (farhang).",
            "NAME",
        ),
    ] = "wide-margin",
    set_: options.Set = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    count: Annotated[
        int | None, data_option("Train on N samples drawn at random; by default on all.", "N", min=1)
    ] = None,
    test: options.Test = None,
    label: options.Label = None,
    data_root: options.DataRoot = None,
    strength: Annotated[Number, loss_option("Factor of the term that widens margins (wide-margin).", "X")] = None,
    share: Annotated[
        Number,
        loss_option("Part of each batch whose margins are widened: 1, with many samples 1/8 (wide-margin).", "X"),
    ] = None,
    gamma: Annotated[
        Number, loss_option("γ, the margin above which the loss is zero (large-margin, odn-hinge, hinge).", "X")
    ] = None,
    r: Annotated[Number, loss_option("r, the middle of the band (odn).", "X")] = None,
    theta: Annotated[Number, loss_option("θ, half the width of the band (odn).", "X")] = None,
    mu: Annotated[Number, loss_option("μ, the weight of margins above the band (odn).", "X")] = None,
    alpha: Annotated[Number, loss_option("α, the target margin (target).", "X")] = None,
    at: options.At = None,
    p: Annotated[Number, loss_option("The l_p norm of the margin, from 1 to inf.", "P", flag="--p")] = None,
    classes: Annotated[str | None, loss_option("Compare with the N other classes of highest score.", "N|all")] = None,
    add_cross_entropy: Annotated[Number, loss_option("Add cross-entropy with this weight.", "X")] = None,
    as_printed: Annotated[
        bool, loss_option("The loss as printed in the papers, not the scale-free form.", "", flag="--as-printed")
    ] = False,
    jacobian: Annotated[float, loss_option("Weight of sokolic's Jacobian regularizer.", "X", min=0.0)] = 0.0,
    weight_decay: Annotated[float, loss_option("Weight of the squared weights.", "X", min=0.0)] = 0.0,
    optimizer: Annotated[OptimizerName, optimizer_option("The optimizer; adam is AdamW.")] = "adam",
    lr: Annotated[Number, optimizer_option("Learning rate; by default 0.001 for adam, else 0.01.", "X")] = None,
    momentum: Annotated[Number, optimizer_option("By default 0.9 for sgd, 0 for rmsprop.", "X")] = None,
    schedule: Annotated[ScheduleName, optimizer_option("Schedule of the learning rate.")] = "constant",
    epochs: Annotated[int, optimizer_option("Passes over the data.", "N", min=1)] = 20,
    batch_size: options.BatchSize = 128,
    device: options.Device = "auto",
    tensorboard: Annotated[Path | None, result_option("Write TensorBoard logs to this folder.", "FOLDER")] = None,
    folder: Annotated[
        Path,
        result_option(
            "Folder of the results. A training with the same settings that was begun there is continued; one with "
            "other settings is an error.",
            "FOLDER",
            flag="--out",
        ),
    ] = Path("runs/train"),
) -> None:
    r"""Train a network with wide margins, measure it on the test set, and write a page.

    Writes weights.safetensors, history.json, margins.parquet, summary.json,
    page.html and a checkpoint: the same command continues an interrupted run,
    with the same result.

    [bold]Examples[/bold]

    The default loss, and cross-entropy for comparison:

      widemargin train --model elsayed-mnist-cnn --data mnist-5k \
          --out runs/wide
      widemargin train --model elsayed-mnist-cnn --data mnist-5k \
          --loss cross-entropy --out runs/plain

    Your own table, with the labels in the column species:

      widemargin train --model toy-mlp --data iris.csv --label species

    The large-margin loss of elsayed at two places:

      widemargin train --model elsayed-mnist-cnn --data mnist-5k \
          --loss large-margin --gamma 1 --at input --at conv2

    Your own network, build() in nets.py, with the loss as printed in odn:

      widemargin train --model nets:build --data cifar10 --loss odn \
          --r 1.2 --theta 0.7 --as-printed --optimizer sgd --lr 0.01
    """
    from widemargin import norms
    from widemargin.data import subset
    from widemargin.training import Devices, Measure, TensorBoard, fit

    if p is not None:
        with about("--p"):
            norms.check_p(p)
    places = tuple(at) if at else None
    given: dict[str, Json] = {"gamma": gamma, "r": r, "theta": theta, "mu": mu, "alpha": alpha, "at": places, "p": p}
    given |= {"strength": strength, "share": share}
    given |= {"classes": None if classes is None else parse_classes(classes), "cross_entropy": add_cross_entropy}
    minimised = _loss(loss, given, as_printed=as_printed)
    weighted = {"jacobian": jacobian, "weight-decay": weight_decay}
    regularizers = registry.regularizers([{"name": name, "weight": weight} for name, weight in weighted.items()])
    steps = _optimizer(optimizer, lr, momentum)
    if tensorboard is not None:
        check_writable("--tensorboard", tensorboard)
    if not is_installed("lightning"):
        check_installed("lightning_fabric", purpose="training")
    check_installed("pyarrow", purpose="writing margins.parquet")  # before the work, not after it
    source = DataSource(data=data, test=test, label=label, seed=seed, root=data_root)
    inputs = load_inputs(model, source, set_, weights, device, folder, at)
    samples = inputs.data.train
    if count is not None:
        with about("--count"):
            samples = subset(in_memory(samples, data), count=count, seed=seed)
    make_folder(folder)
    start = time.monotonic()
    with _one_line_stops(folder):
        result = fit(
            inputs.network,
            samples,
            loss=minimised,
            regularizers=regularizers,
            optimizer=steps,
            schedule=registry.schedule({"name": schedule, "unit": "steps"}),
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            validation=inputs.samples,
            callbacks=[Measure(at=places, p=p), *([] if tensorboard is None else [TensorBoard(tensorboard)])],
            devices=Devices.of(inputs.device),
            checkpoint=folder / "checkpoint",
        )
    origin = {
        **{key: inputs.origin[key] for key in ("model", "set", "data", "device")},
        "start": inputs.origin["weights"],
        "training samples": f"{len(samples):,}" if isinstance(samples, Sized) else "streamed",
        **{"loss": str(minimised), "regularizers": [str(one) for one in regularizers], "optimizer": str(steps)},
        **{"schedule": schedule, "epochs": epochs, "batch_size": batch_size, "seed": seed},
        "widemargin": __version__,
    }
    where = {"at": places or getattr(minimised, "at", None), "p": getattr(minimised, "p", 2.0) if p is None else p}
    margins = measure_margins(inputs, origin, **where, batch_size=256)
    title = f"{model} on {data}, {loss}"
    written = _write(folder, inputs, result, margins, title, round(time.monotonic() - start, 1))
    console = out()
    console.print(text(f"{title}: {len(margins)} test samples, {tables.accuracy(margins)}", "bold"))
    console.print(tables.by_place(margins))
    wrote(*written)


@contextmanager
def _one_line_stops(folder: Path) -> Iterator[None]:
    """One line where the training stops in the `with` block, and where `folder` has another training."""
    from widemargin.training import TrainingStopped
    from widemargin.training.checkpoint import OtherTrainingError

    try:
        yield
    except TrainingStopped as stopped:
        complain(str(stopped))
        raise typer.Exit(1) from None
    except OtherTrainingError as other:
        raise ValueError(
            f"--out is {str(folder)!r}, where a training with another setting was begun ({other.setting}): name "
            "another folder, or remove this one"
        ) from other


def _loss(name: LossName, options: Mapping[str, Json], *, as_printed: bool) -> Loss:
    """The loss with the options that were given; `at` and `p` are used for measuring too, so every loss allows them."""
    given = {key: value for key, value in options.items() if value is not None}
    given |= {"stabilize": None} if as_printed else {}
    flags = {"stabilize": "--as-printed", "cross_entropy": "--add-cross-entropy"}
    values: dict[str, Json] = {"name": name}
    for key, value in given.items():
        losses = registry.losses_with(key)
        if name in losses:
            values[key] = value
        elif key not in ("at", "p"):
            raise ValueError(f"{flags.get(key, f'--{key}')} is not for --loss {name}, but for {', '.join(losses)}")
    try:
        return registry.loss(values)
    except (ValueError, TypeError) as error:
        name_of_option, _, rest = str(error).partition(" ")
        if name_of_option not in given:
            raise
        raise type(error)(f"--{name_of_option.replace('_', '-')} {rest}") from error


def _optimizer(name: OptimizerName, lr: float | None, momentum: float | None) -> MakesOptimizer:
    usual = {"lr": 0.01, "momentum": 0.9} if name == "sgd" else {}
    given = {key: value for key, value in (("lr", lr), ("momentum", momentum)) if value is not None}
    if lr is not None:
        from widemargin.checks import check_number

        check_number("--lr", lr, above=0.0)
    if momentum is not None and name == "adam":
        raise ValueError(f"--momentum is {momentum}, which is for --optimizer sgd or rmsprop, but that is {name}")
    with about("--optimizer"):
        return registry.optimizer({"name": name, **usual, **given})


def _write(folder: Path, inputs: Inputs, result: Fit, margins: Measurement, title: str, seconds: float) -> list[Path]:
    """Write the weights, the history, the margins and the page."""
    from safetensors.torch import save_model

    from widemargin._io.files import write_whole

    settings = margins.settings
    note = " + ".join((settings["loss"], *settings["regularizers"]))
    more = {"note": note, "history": arms.history(result.history.rows), "seconds": seconds}
    arm = arms.of_inputs(title.rpartition(", ")[2], margins, inputs, **more)
    counts = f"{settings['training samples']} samples to train on, {len(margins):,} to test on"
    return [
        write_whole(folder / "weights.safetensors", lambda path: save_model(inputs.network, str(path))),
        result.history.write(folder / "history.json"),
        *margins.write(folder),
        *arms.write_page(
            folder,
            arm,
            title=title,
            subtitle=f"{counts}; seed {settings['seed']}",
            settings=settings,
            validation="test",
        ),
    ]
