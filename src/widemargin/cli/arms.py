"""Measurements as the plain values that the report reads (`report.schema`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from widemargin._io.files import write_parquet
from widemargin._io.optional import EXTRAS, is_installed
from widemargin.cli.console import notice
from widemargin.cli.tables import norm

if TYPE_CHECKING:
    from widemargin.certify.bracket import Bracket
    from widemargin.cli.inputs import Inputs
    from widemargin.margins import Measurement
    from widemargin.report.schema import ArmResult, Json


def arm(name: str, measured: Measurement, **more: Json) -> ArmResult:
    """One network of a page, see `margins.page.arm`."""
    from widemargin.margins import page

    return page.arm(name, measured, **more)


def of_inputs(name: str, measured: Measurement, inputs: Inputs, **more: Json) -> ArmResult:
    """One network of a page, with the images of its samples; a streamed data set has no tensor of all inputs."""
    data = inputs.data
    x = getattr(inputs.samples, "x", None)
    return arm(name, measured, inputs=x, bounds=data.bounds, classes=data.classes, **more)


def write_page(
    folder: Path, arm: ArmResult, *, title: str, subtitle: str, settings: Mapping[str, Json], **more: Json
) -> list[Path]:
    """Write page.html with one arm; a notice and no file if the packages of the extra `report` are missing.

    `more`: other entries of `report.schema.Result`.
    """
    from widemargin.report import page

    if not is_installed(*EXTRAS["report"]):
        notice("no page.html, which needs more packages: pip install 'widemargin[report]'")
        return []
    shown = {"title": title, "subtitle": subtitle, "norm": norm(settings["p"]), "arms": [arm], **more}
    return [page.write(folder / "page.html", shown | facts(settings, settings["device"]))]


def facts(settings: Mapping[str, Json], device: str = "cpu") -> dict[str, Json]:
    """The given settings, the versions and the hardware of a page."""
    from widemargin.margins import page

    return page.facts(settings, device)


def bracket(found: Bracket, points: int = 61) -> dict[str, Json]:
    """A bracket as an arm has it, with robust accuracy at ε from 0 to the largest upper bound."""
    known = found.upper[found.found]
    top = float(known.max()) if len(known) else float(found.lower.max())
    band = found.robust_accuracy([top * i / (points - 1) for i in range(points)])
    rows = zip(band.epsilons, band.certified, band.attacked, strict=True)
    # Rounded outwards: a lower bound must not exceed its upper bound or what is proved.
    return {
        "lower": [min(value, float(f"{value:.6g}")) for value in found.lower.tolist()],
        "upper": [None if math.isinf(value) else max(value, float(f"{value:.6g}")) for value in found.upper.tolist()],
        "linearized": [plain(value) for value in found.linearized.tolist()],
        "band": [{"epsilon": e, "certified": c, "attacked": a} for e, c, a in rows],
    }


def write_bracket(path: Path, found: Bracket) -> Path:
    """Write the bracket's columns as Parquet; a missing upper bound is infinite."""
    import numpy as np

    columns = {name: getattr(found, name).numpy() for name in ("lower", "upper", "linearized", "found")}
    return write_parquet(path, {**columns, "lower by": np.array(found.lower_by)})


def history(rows: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """The rows of a training's history, as an arm has them."""
    return [
        {key: value if isinstance(value, (str, int)) else plain(value) for key, value in row.items()} for row in rows
    ]


def plain(value: float) -> float | None:
    """Rounded to six digits; None for NaN and infinities, which JSON does not have."""
    from widemargin.margins import page

    return page.plain(value)
