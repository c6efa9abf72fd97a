"""The networks by name: their table, their construction and their descriptions."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from widemargin._io.optional import is_installed, not_installed
from widemargin.checks import check_choice
from widemargin.models import elsayed, farhang, odn, resnet, sokolic, toy, vit
from widemargin.modules import evaluating

Settings: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Description:
    """Description of a network, as `describe` returns it.

    Attributes:
        name: the name in the table.
        source: the paper and its section.
        settings: every setting that `build` takes, with its value here.
        input_shape: the shape of one input.
        parameters: the number of weights and biases; None where a package is missing.
        places: the names that can be places of a margin, in the order in which they run, from "input" to the output.
        needs: the package that must be installed first; empty where none is missing.
    """

    name: str
    source: str
    settings: Settings
    input_shape: tuple[int, ...]
    parameters: int | None
    places: tuple[str, ...]
    needs: str = ""


def names() -> tuple[str, ...]:
    """The names of the networks, in the order of the papers."""
    return tuple(_TABLE)


def build(name: str, **settings: object) -> nn.Module:
    """Build the network `name` with the paper's settings, or with others given by name (`models.describe` lists them).

    The weights come from torch's global generator: `torch.manual_seed` before it makes them reproducible.
    """
    row, merged = _merged(name, settings)
    return row.function(**merged)


def describe(name: str, **settings: object) -> Description:
    """Count the parameters and list the places of a network, without allocating its weights or drawing numbers."""
    row, merged = _merged(name, settings)
    network: nn.Module | None = None
    if not row.needs():
        with torch.device("meta"):
            network = row.function(**merged)
    return Description(
        name=name,
        source=row.source,
        settings={key: value for key, value in merged.items() if key not in row.preset},
        input_shape=row.input_shape(merged),
        parameters=None if network is None else sum(weight.numel() for weight in network.parameters()),
        places=() if network is None else places(network, row.input_shape(merged)),
        needs=row.needs(),
    )


def places(network: nn.Module, input_shape: tuple[int, ...]) -> tuple[str, ...]:
    """List "input" and the modules that run exactly once and return a tensor, in the order in which they finish.

    The network is run on one zero input of the device and dtype of its weights, in evaluation mode, without
    gradients; its training mode is restored. A container is listed where it finishes: a residual block after its
    layers.
    """
    runs: Counter[str] = Counter()
    order: list[str] = []

    def record(name: str, output: object) -> None:
        runs[name] += 1
        if isinstance(output, Tensor):
            order.append(name)

    handles = [
        module.register_forward_hook(lambda _module, _args, output, name=name: record(name, output))
        for name, module in network.named_modules()
        if name
    ]
    like = next(network.parameters())
    try:
        with evaluating(network), torch.no_grad():
            network(torch.zeros(1, *input_shape, device=like.device, dtype=like.dtype))
    finally:
        for handle in handles:
            handle.remove()
    return ("input", *(name for name in order if runs[name] == 1))


def _image(settings: Settings) -> tuple[int, ...]:
    size = settings.get("size", 32)
    return (settings["in_channels"], size, size)


def _vector(settings: Settings) -> tuple[int, ...]:
    return (settings["inputs"],)


@dataclass(frozen=True)
class _Row:
    function: Callable[..., nn.Module]
    source: str
    input_shape: Callable[[Settings], tuple[int, ...]]
    preset: Settings = field(default_factory=dict)
    needs: Callable[[], str] = str


_TABLE: dict[str, _Row] = {
    "elsayed-toy": _Row(toy.elsayed_toy, "elsayed, Fig. 1b", lambda _: (2,)),
    "elsayed-mnist-cnn": _Row(elsayed.mnist_cnn, "elsayed, §4.2 and A.2", _image),
    "wrn-28-10": _Row(elsayed.wide_resnet, "elsayed, §4.3 and B.1", _image),
    "wrn-28-10-gn": _Row(
        elsayed.wide_resnet, "elsayed, §4.3 and B.1, with group norm", _image, preset={"norm": "group"}
    ),
    "inception-v3": _Row(
        elsayed.inception_v3,
        "elsayed, §4.4 and C",
        lambda _: (3, 299, 299),
        needs=lambda: "" if is_installed("torchvision") else str(not_installed("torchvision", "inception-v3")),
    ),
    "odn-mnist-cnn": _Row(odn.odn_cnn, "odn, §4.1", _image),
    "odn-alexnet": _Row(odn.alexnet, "odn, §4.1 and Table 1", _image),
    "sokolic-mlp": _Row(sokolic.sokolic_mlp, "sokolic, §V, Fig. 2", _vector),
    "sokolic-cnn": _Row(sokolic.sokolic_cnn, "sokolic, §V, Table I", _image),
    "farhang-mlp": _Row(farhang.farhang_mlp, "farhang, (1) and A.1", _vector),
    "farhang-cnn": _Row(farhang.farhang_cnn, "farhang, A.3", _image),
    "resnet-18": _Row(resnet.resnet, "He et al. 2016, for 32×32 pixels", _image),
    "vit": _Row(vit.vit, "Dosovitskiy et al. 2021, small", _image),
    "toy-mlp": _Row(toy.toy_mlp, "for pictures", _vector),
}


def _merged(name: str, settings: Settings) -> tuple[_Row, dict[str, object]]:
    """The row of a network, and all settings of it."""
    check_choice("name", name, _TABLE)
    row = _TABLE[name]
    defaults = {key: value.default for key, value in inspect.signature(row.function).parameters.items()}
    known = [key for key in defaults if key not in row.preset]
    for key in settings:
        if key not in known:
            raise ValueError(f"{key!r} is not a setting of {name}, expected one of {', '.join(known)}")
    return row, defaults | dict(row.preset) | dict(settings)
