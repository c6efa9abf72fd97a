"""The network and the data that a command line names, loaded and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from widemargin._io.files import check_writable
from widemargin.cli.console import notice, printable
from widemargin.cli.errors import about
from widemargin.cli.networks import names_of_settings, parse_settings, resolve
from widemargin.cli.sources import DataSource, settings_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from widemargin.data import Data, Samples
    from widemargin.margins import Measurement
    from widemargin.report.schema import Json


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A network on its device, a data set, the part of it that is used, and the names of all of them."""

    network: nn.Module
    data: Data[Any]
    samples: Any
    device: torch.device
    origin: dict[str, Any]
    is_own: bool = False
    """Whether the samples are of the user's own file or function."""


def load_inputs(
    model: str,
    source: DataSource,
    set_: Sequence[str] | None,
    weights: Path | None,
    device: str,
    folder: Path,
    at: Sequence[str] | None = None,
) -> Inputs:
    """Load the network and the data of a command; check that they fit together, and the output folder.

    Settings of the network that are sizes, channels and classes are those of the user's own data, unless given.
    """
    from widemargin.places import check_places

    settings = parse_settings(set_ or [])
    check_folder(folder)
    chosen = find_device(device)
    loaded = source.load() if source.is_own else None
    if loaded is not None:
        settings = with_sizes(model, settings, loaded)
    network = resolve(model, settings=settings, weights=weights, seed=source.seed).to(chosen)
    if at:
        with about("--at"):
            check_places(network, at)
    loaded = source.load() if loaded is None else loaded
    samples = source.part(loaded)
    classes = loaded.classes if source.is_own else tuple(map(str, range(len(loaded.classes))))  # names are its own
    check_fits(network, samples, model, source.data, classes)
    own = {"test": source.test, "label": source.label, "network": settings} if source.is_own else {}
    origin = {
        "model": model,
        "set": [printable(pair) for pair in set_ or []],
        "weights": None if weights is None else printable(weights),
        **({"seed": source.seed} if weights is None or source.is_own else {}),
        "data": printable(source.data),
        "split": source.split,
        **{key: value for key, value in own.items() if value},
        "device": str(chosen),
    }
    return Inputs(network=network, data=loaded, samples=samples, device=chosen, origin=origin, is_own=source.is_own)


def with_sizes(model: str, settings: Mapping[str, Json], data: Data[Any]) -> dict[str, Json]:
    """`settings` of the network, with sizes, channels and classes of the user's own `data` where none are given."""
    told = settings_of(data)
    return {key: told[key] for key in names_of_settings(model) if key in told} | dict(settings)


def find_device(name: str) -> torch.device:
    """The device `name`, after checking that it works; `auto` is the accelerator of this machine, or the CPU."""
    import torch

    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        chosen = torch.device(name)
        torch.empty(1, device=chosen).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device is {name!r}, which this machine can't use: {str(error).splitlines()[0]}") from error
    return chosen


def in_memory(samples: object, data: str) -> Samples:
    """The samples; raises where those of --data are streamed."""
    from widemargin.data import Samples

    if not isinstance(samples, Samples):
        raise TypeError(f"--data is {data!r}, which is streamed, expected samples in memory")
    return samples


def note_untrained(model: str, weights: Path | None) -> None:
    """Print a notice if no trained weights were given."""
    if weights is None:
        own = f"the network has the weights that {model} gave it"
        notice(f"no --weights, so {own if ':' in model else 'the network is untrained, its weights random'}")


def check_folder(folder: Path) -> None:
    """Raise if the output folder is a file, or if no file can be written there; nothing is created yet."""
    check_writable("--out", folder)


def make_folder(folder: Path) -> None:
    """Create the output folder."""
    check_folder(folder)
    with about("--out"):
        folder.mkdir(parents=True, exist_ok=True)


def check_fits(network: nn.Module, samples: Any, model: str, data: str, classes: Sequence[str] = ()) -> None:
    """Run one sample, so that inputs of the wrong shape and missing classes give an error about the options."""
    import torch

    from widemargin.data import batches
    from widemargin.modules import NamedInputs, arguments, cast_input, evaluating, forward

    x, y = next(iter(batches(samples, batch_size=1)))
    x = arguments(network, cast_input(network, x))
    try:
        with evaluating(network), torch.no_grad():
            scores = forward(network, x)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"--model {model} does not fit into this device's memory, even with one sample") from error
    except (RuntimeError, TypeError, ValueError) as error:
        shape = repr(x) if isinstance(x, NamedInputs) else f"of shape {list(x.shape[1:])}"
        raise ValueError(
            f"--model {model} can't take the inputs of --data {data}, {shape}: "
            f"{str(error.__cause__ or error).splitlines()[0]}; its settings may change that (--set)"
        ) from error
    count = scores.shape[1] if scores.ndim == 2 else 1
    are_names = any(name != str(label) for label, name in enumerate(classes))
    if count > 1 and not y.is_floating_point() and (len(classes) > count or (are_names and len(classes) != count)):
        shown = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
        raise ValueError(
            f"--model {model} has {count} scores, but --data {data} has {len(classes)} classes ({shown}); its settings "
            "may change that (--set)"
        )


def measure_margins(inputs: Inputs, origin: Mapping[str, Any], *, batch_size: int, **options: Any) -> Measurement:
    """`margins.measure`, with `origin` among its settings and positions in the user's own file.

    An error about the option if the memory does not suffice.
    """
    import torch

    from widemargin import margins

    try:
        found = margins.measure(inputs.network, inputs.samples, batch_size=batch_size, **options)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"--batch-size is {batch_size}, too many samples for this device's memory") from error
    index = inputs.samples.index if inputs.is_own else None
    return replace(found, settings={**origin, **found.settings}, index=found.index if index is None else index.cpu())


def parse_classes(value: str) -> int | Literal["all"]:
    """The argument of `--classes`."""
    if value == "all":
        return "all"
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"--classes is {value!r}, expected a number of other classes, at least 1, or 'all'")
    return int(value)
