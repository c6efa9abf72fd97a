"""Pages of measurements: the plain values that the report reads (`report.schema`), and HTML files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from torch import Tensor

from widemargin._io.provenance import provenance
from widemargin.report import page, png
from widemargin.report.names import class_label, norm_label
from widemargin.report.schema import ArmResult, Json

Bounds = tuple[float, float] | None


@runtime_checkable
class Measured(Protocol):
    """The parts of a `Measurement` that a page shows."""

    @property
    def margins(self) -> dict[str, Tensor]: ...  # noqa: D102

    @property
    def labels(self) -> Tensor: ...  # noqa: D102

    @property
    def predictions(self) -> Tensor: ...  # noqa: D102

    @property
    def settings(self) -> dict[str, Json]: ...  # noqa: D102

    @property
    def accuracy(self) -> float: ...  # noqa: D102

    @property
    def index(self) -> Tensor | None: ...  # noqa: D102

    @property
    def knows_positions(self) -> bool: ...  # noqa: D102

    def hardest_rows(self, count: int) -> Tensor: ...  # noqa: D102

    def position(self, row: int) -> int: ...  # noqa: D102

    def __len__(self) -> int: ...


def write(
    path: str | os.PathLike[str],
    measured: Measured,
    *,
    title: str,
    inputs: Tensor | None = None,
    bounds: Bounds = None,
    classes: Sequence[str] = (),
) -> Path:
    """Write the page of a measurement, with the images of smallest margin where `inputs` are images."""
    if inputs is not None and len(inputs) < len(measured):
        raise ValueError(f"inputs has {len(inputs)} samples, but {len(measured)} were measured")
    if inputs is not None and not measured.knows_positions:
        raise ValueError("inputs is given, but the data were a stream whose positions in them are not known")
    if inputs is not None and measured.index is not None:
        inputs = inputs[measured.index]
    made = arm("network", measured, inputs=inputs, bounds=bounds, classes=classes, hardest=24)
    shown = {"title": title, "subtitle": f"{len(measured):,} samples", "norm": norm_label(measured.settings["p"])}
    device = str(measured.settings.get("device", "cpu"))
    return page.write(path, shown | {"arms": [made]} | facts(measured.settings, device))


def arm(
    name: str,
    measured: Measured,
    *,
    inputs: Tensor | None = None,
    bounds: Bounds = None,
    classes: Sequence[str] = (),
    hardest: int = 12,
    **more: Json,
) -> ArmResult:
    """One network of a page, with the `hardest` samples, those of smallest margin.

    `inputs` has a row for each row of the measurement. Images among them, of one or three channels, are shown in the
    range `bounds`, by default in their own.
    `more`: other entries of `report.schema.ArmResult`, such as curve, history and note.
    """
    place = next(iter(measured.margins))
    shown = []
    for i in measured.hardest_rows(hardest).tolist():
        label, prediction = (class_label(of[i].item(), classes) for of in (measured.labels, measured.predictions))
        margin = plain(measured.margins[place][i].item())
        position = measured.position(i)
        picture = {} if inputs is None else image(inputs[i], bounds)
        shown.append({"index": position, "label": label, "prediction": prediction, "margin": margin, **picture})
    values = {at: [plain(m) for m in margins.tolist()] for at, margins in measured.margins.items()}
    made = {"name": name, "samples": len(measured), "accuracy": measured.accuracy, "margins": values, "hardest": shown}
    return cast("ArmResult", made | more)


def facts(settings: Mapping[str, Json], device: str = "cpu") -> dict[str, Json]:
    """The given settings, the versions and the hardware of a page."""
    origin = provenance(device)
    return {
        "settings": {key: value for key, value in settings.items() if value not in (None, [])},
        "versions": {**origin["versions"], "commit": origin["commit"] or "unknown"},
        "hardware": origin["hardware"],
    }


def plain(value: float) -> float | None:
    """Rounded to six digits; None for NaN and infinities, which JSON does not have."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def image(x: Tensor, bounds: Bounds) -> dict[str, str]:
    """The PNG of an input that is an image; empty for other inputs."""
    if x.ndim != 3 or x.shape[0] not in (1, 3):
        return {}
    low, high = bounds or (float(x.min()), float(x.max()))
    scaled = ((x.detach().cpu().double() - low) / ((high - low) or 1.0)).clamp(0, 1)
    return {"image": png.data_uri(scaled.numpy())}
