"""Rows of the benchmark: network, size and methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from step_cost.settings import Settings
from step_cost.transformer import VisionTransformer
from widemargin import models

CNN = ("input", "pool1", "pool2", "relu3", "relu4")
WRN = ("input", "group1", "group2", "group3", "pool")
VIT = ("input", "blocks.2", "blocks.5", "blocks.8", "blocks.11")
INCEPTION = ("input", "Mixed_5d", "Mixed_6e", "Mixed_7c", "avgpool")

STRONGEST = (
    "margin_backward",
    "plain autograd",
    "a backward per place",
    "with cross-entropy, margin_backward",
    "with cross-entropy, plain autograd",
)
ALL = ("all classes", "all classes, one by one")
ESTIMATED = ("all classes estimated, m = 3", "class chosen by a probe")
GRAPHS = ("cross-entropy, CUDA graph", "margin_backward, CUDA graph", "with cross-entropy, CUDA graph")
WIDE = ("WideMargin", "WideMargin, share 1/8", "cross-entropy and Jacobian, double backward")
WIDE_GRAPHS = ("cross-entropy, CUDA graph", "WideMargin, CUDA graph", "WideMargin, share 1/8, CUDA graph")
JACOBIAN = ("Jacobian regularizer", "Jacobian regularizer, a backward per class")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row: a network in training mode, its settings, batch, places of the loss and methods."""

    label: str
    network: str
    places: tuple[str, ...]
    batch: int
    methods: tuple[str, ...]
    build: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (3, 32, 32)
    classes: int = 10
    precision: str = "fp32"
    base: str = "cross-entropy"

    def make(self) -> nn.Module:
        """Build the network with weights from torch's generator."""
        if self.network == "vit-s":
            return VisionTransformer(classes=self.classes, **self.build)
        return models.build(self.network, classes=self.classes, **self.build)


def cases(settings: Settings) -> Iterator[Case]:
    """Yield all rows: steps, the regularizer, then the scaling."""
    on_gpu = settings.on_gpu
    graphs = GRAPHS if on_gpu else ()
    every, group = STRONGEST + graphs + ALL + ESTIMATED, ("a backward per place and class",)
    small: dict[str, Any] = {} if on_gpu else {"depth": 10, "widen": 1}
    yield Case(
        label="MNIST CNN",
        network="elsayed-mnist-cnn",
        shape=(1, 28, 28),
        places=CNN,
        batch=128 if on_gpu else 16,
        methods=every + group,
    )
    yield from _networks(on_gpu, small, every, group, STRONGEST + graphs + ESTIMATED)
    wide = WIDE + (WIDE_GRAPHS if on_gpu else ())
    for case in _networks(on_gpu, small, wide, (), wide):
        yield dataclasses.replace(case, label=f"WideMargin, {case.label}", places=("input",))
    yield from _jacobian(on_gpu)
    if on_gpu:
        yield Case(
            label="Inception v3, bf16",
            network="inception-v3",
            build={"auxiliary": False},
            shape=(3, 299, 299),
            classes=1000,
            places=INCEPTION,
            batch=64,
            precision="bf16",
            methods=STRONGEST + graphs + ESTIMATED,
        )
    yield from _scaling(on_gpu, small)


def _networks(
    on_gpu: bool, small: dict[str, Any], every: tuple[str, ...], group: tuple[str, ...], of_vit: tuple[str, ...]
) -> Iterator[Case]:
    for precision in ("fp32", "bf16") if on_gpu else ("fp32",):
        for norm, name in (("GroupNorm", "wrn-28-10-gn"), ("BatchNorm", "wrn-28-10")):
            yield Case(
                label=f"WRN-28-10, {norm}, {precision}",
                network=name,
                build=small,
                places=WRN,
                batch=128 if on_gpu else 4,
                precision=precision,
                methods=every + group if precision == "fp32" else every,
            )
        vit: dict[str, Any] = {} if on_gpu else {"size": 32, "patch": 8, "width": 32, "depth": 12, "heads": 2}
        yield Case(
            label=f"ViT-S, {precision}",
            network="vit-s",
            build=vit,
            shape=(3, 224, 224) if on_gpu else (3, 32, 32),
            classes=1000 if on_gpu else 50,
            places=VIT,
            batch=64 if on_gpu else 4,
            precision=precision,
            methods=of_vit,
        )


def _jacobian(on_gpu: bool) -> Iterator[Case]:
    for label, name, shape in (("MLP", "sokolic-mlp", (784,)), ("CNN", "sokolic-cnn", (1, 28, 28))):
        yield Case(
            label=f"Jacobian, sokolic's {label}",
            network=name,
            build={} if on_gpu or label == "MLP" else {"channels": 8},
            shape=shape,
            places=("input",),
            batch=128 if on_gpu else 16,
            methods=("cross-entropy", JACOBIAN[0]),
            base=JACOBIAN[1],
        )


def _scaling(on_gpu: bool, small: dict[str, Any]) -> Iterator[Case]:
    for classes in (10, 100, 1000) if on_gpu else (10, 100):
        yield Case(
            label=f"Scaling, {classes} classes",
            network="wrn-28-10-gn" if on_gpu else "elsayed-mnist-cnn",
            shape=(3, 32, 32) if on_gpu else (1, 28, 28),
            build={},
            classes=classes,
            places=("input",),
            batch=128 if on_gpu else 4,
            methods=("margin_backward", *ESTIMATED, *(ALL[:1] if classes <= 100 else ())),
        )
    blocks = [f"group{g}.block{b}" for g in (1, 2, 3) for b in ((1, 2, 3, 4) if on_gpu else (1,))]
    inside = [f"{block}.conv{c}" for block in blocks for c in (1, 2)]
    for count in (1, 5, 20) if on_gpu else (1, 5):
        yield Case(
            label=f"Scaling, {count} places",
            network="wrn-28-10-gn",
            build=small,
            places=("input", *inside[: count - 1]),
            batch=128 if on_gpu else 4,
            methods=STRONGEST[:3],
        )
    for batch in (32, 128, 512) if on_gpu else (4, 16):
        yield Case(
            label=f"Scaling, batch {batch}",
            network="wrn-28-10-gn",
            build=small,
            places=WRN,
            batch=batch,
            methods=STRONGEST[:2],
        )
