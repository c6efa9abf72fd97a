"""The table of layers × capabilities; run as a script, it writes the table into the page of the docs."""

from __future__ import annotations

import re
from pathlib import Path

from torch import nn

import widemargin.certify
import widemargin.population  # noqa: F401
from widemargin import layers

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "layers.md"

EXPECTED: dict[str, str] = {
    "AdaptiveAvgPool1d": "affine relaxation lipschitz",
    "AdaptiveAvgPool2d": "affine relaxation lipschitz",
    "AdaptiveAvgPool3d": "affine relaxation lipschitz",
    "AlphaDropout": "affine relaxation lipschitz unstackable",
    "AvgPool1d": "affine relaxation lipschitz",
    "AvgPool2d": "affine relaxation lipschitz",
    "AvgPool3d": "affine relaxation lipschitz",
    "BatchNorm1d": "affine relaxation lipschitz normalizes stacked unstackable",
    "BatchNorm2d": "affine relaxation lipschitz normalizes stacked unstackable",
    "BatchNorm3d": "affine relaxation lipschitz normalizes stacked unstackable",
    "Conv1d": "affine relaxation operator_norm row_axis jvp weight_gradient",
    "Conv2d": "affine relaxation operator_norm row_axis jvp weight_gradient stacked",
    "Conv3d": "affine relaxation operator_norm row_axis jvp weight_gradient",
    "ConvTranspose1d": "row_axis",
    "ConvTranspose2d": "row_axis",
    "ConvTranspose3d": "row_axis",
    "Dropout": "affine relaxation lipschitz stacked",
    "Dropout1d": "affine relaxation lipschitz stacked",
    "Dropout2d": "affine relaxation lipschitz stacked",
    "Dropout3d": "affine relaxation lipschitz stacked",
    "Embedding": "stacked unstackable",
    "EmbeddingBag": "unstackable",
    "FeatureAlphaDropout": "affine relaxation lipschitz unstackable",
    "Flatten": "affine relaxation lipschitz",
    "GELU": "jvp",
    "GroupNorm": "steps relaxation normalizes jvp gradient_sums stacked",
    "Identity": "affine relaxation lipschitz",
    "InstanceNorm1d": "steps relaxation normalizes",
    "InstanceNorm2d": "steps relaxation normalizes",
    "InstanceNorm3d": "steps relaxation normalizes",
    "LayerNorm": "steps relaxation normalizes jvp weight_gradient",
    "LeakyReLU": "pieces relaxation lipschitz",
    "Linear": "affine relaxation operator_norm row_axis jvp weight_gradient stacked",
    "LocalResponseNorm": "normalizes",
    "MaxPool1d": "pieces relaxation lipschitz",
    "MaxPool2d": "pieces relaxation lipschitz stacked",
    "MaxPool3d": "pieces relaxation lipschitz",
    "MultiheadAttention": "jvp unstackable",
    "PReLU": "pieces relaxation",
    "RMSNorm": "steps relaxation normalizes",
    "RNNBase": "unstackable",
    "ReLU": "pieces relaxation lipschitz jvp",
    "SyncBatchNorm": "affine relaxation lipschitz normalizes unstackable",
    "Unflatten": "affine relaxation lipschitz",
}


def test_every_layer_has_these_capabilities() -> None:
    own = {name: " ".join(found) for name, found in layers.table().items() if hasattr(nn, name)}
    assert own == EXPECTED


def test_the_page_holds_the_table() -> None:
    assert PAGE.read_text() == with_tables(PAGE.read_text())


def with_tables(page: str) -> str:
    """The page with both tables as the registry has them."""
    capabilities = [f"| {name} | {text} |" for name, text in layers.CAPABILITIES.items()]
    names = list(layers.CAPABILITIES)
    head = [f"| layer | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    rows = [
        f"| {layer} | {' | '.join('yes' if name in EXPECTED[layer].split() else '–' for name in names)} |"
        for layer in EXPECTED
    ]
    tables = {"capability": ["| capability | rule |", "| --- | --- |", *capabilities], "layer": head + rows}
    for first, lines in tables.items():
        page = re.sub(rf"^\| {first} \|(.*\n)(\|.*\n?)*", "\n".join(lines) + "\n", page, flags=re.MULTILINE)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
