"""The network and the data that a command line names, loaded and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from widemargin._io.files import check_writable
from widemargin.cli.console import notice, printable
from widemargin.cli.errors import about
from widemargin.cli.networks import parse_settings, resolve
from widemargin.cli.options import SESSION, DataSplit

if TYPE_CHECKING:
    import torch
    from torch import nn

    from widemargin.data import Data, Samples
    from widemargin.margins import Measurement


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A network on its device, a data set, the part of it that is used, and the names of all of them."""

    network: nn.Module
    data: Data[Any]
    samples: Any
    device: torch.device
    origin: dict[str, Any]


def load_inputs(
    model: str,
    data: str,
    set_: Sequence[str] | None,
    weights: Path | None,
    seed: int,
    split: DataSplit,
    data_root: Path | None,
    device: str,
    folder: Path,
    at: Sequence[str] | None = None,
) -> Inputs:
    """Load the network and the data of a command; check that they fit together, and the output folder."""
    from widemargin.data import load
    from widemargin.places import check_places

    settings = parse_settings(set_ or [])
    check_folder(folder)
    chosen = find_device(device)
    network = resolve(model, settings=settings, weights=weights, seed=seed).to(chosen)
    if at:
        with about("--at"):
            check_places(network, at)
    with about("--data"):
        loaded = load(data, root=data_root or SESSION.get().data_root)
    samples = loaded.train if split == "train" else loaded.test
    check_fits(network, samples, model, data)
    origin = {
        "model": model,
        "set": [printable(pair) for pair in set_ or []],
        "weights": None if weights is None else printable(weights),
        **({"seed": seed} if weights is None else {}),
        "data": data,
        "split": split,
        "device": str(chosen),
    }
    return Inputs(network=network, data=loaded, samples=samples, device=chosen, origin=origin)


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


def check_fits(network: nn.Module, samples: Any, model: str, data: str) -> None:
    """Run one sample, so that inputs of the wrong shape give an error about the options."""
    import torch

    from widemargin.data import batches
    from widemargin.modules import evaluating, floating_parameter

    x, _ = next(iter(batches(samples, batch_size=1)))
    weight = floating_parameter(network)
    if weight is not None:
        x = x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype)
    try:
        with evaluating(network), torch.no_grad():
            network(x)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"--model {model} does not fit into this device's memory, even with one sample") from error
    except RuntimeError as error:
        raise ValueError(
            f"--model {model} can't take the inputs of --data {data}, of shape {list(x.shape[1:])}: "
            f"{str(error).splitlines()[0]}; its settings may change that (--set)"
        ) from error


def measure_margins(network: nn.Module, samples: Any, *, batch_size: int, **options: Any) -> Measurement:
    """`margins.measure`, with an error about the option if the memory does not suffice."""
    import torch

    from widemargin import margins

    try:
        return margins.measure(network, samples, batch_size=batch_size, **options)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"--batch-size is {batch_size}, too many samples for this device's memory") from error


def parse_classes(value: str) -> int | Literal["all"]:
    """The argument of `--classes`."""
    if value == "all":
        return "all"
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"--classes is {value!r}, expected a number of other classes, at least 1, or 'all'")
    return int(value)
