"""The linear model of the generalization gap: fitting, testing, and its stored coefficients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from widemargin.diagnostics.gap_features import FEATURES

STORED = "gap_model.json"
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Penalties of the squared coefficients that are tried."""

Matrix = Float64[np.ndarray, "networks features"]
Vector = Float64[np.ndarray, " networks"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearGapModel:
    """gap = intercept + Σ coefficient · (feature − mean)/scale.

    `residuals` are the quantiles of gap − prediction of networks that it was not fitted to, by their level.
    """

    features: tuple[str, ...]
    mean: list[float]
    scale: list[float]
    coefficients: list[float]
    intercept: float
    least: list[float]
    most: list[float]
    residuals: dict[str, float]
    about: dict[str, Any]

    def predict(self, x: Matrix) -> Vector:
        """The gap of networks with these features."""
        z = (x - np.asarray(self.mean)) / np.asarray(self.scale)
        gaps: Vector = self.intercept + z @ np.asarray(self.coefficients)
        return gaps

    def outside(self, values: Mapping[str, float]) -> tuple[str, ...]:
        """Features outside the range of the networks that the model was fitted to."""
        limits = zip(self.features, self.least, self.most, strict=True)
        return tuple(name for name, low, high in limits if not low <= values[name] <= high)

    def plain(self) -> dict[str, Any]:
        """The model as plain values."""
        return {**vars(self), "features": list(self.features)}


def fit_gap_model(
    signatures: Matrix, gaps: Vector, *, groups: Sequence[object], fitted_on: str, features: Sequence[str] = FEATURES
) -> LinearGapModel:
    """Fit the model on one half of the groups of networks, drawn at random, and test it on the other half.

    The prediction interval is that of the residuals of the tested networks, so it holds for networks like these.

    Args:
        signatures: the features of each network, the 20 numbers of `margin_signature(…).values.flatten()`.
        gaps: training minus test accuracy of each network.
        groups: networks of one group, such as those of one architecture, are fitted to or tested together.
        fitted_on: the networks and data in words.
        features: names of the columns.
    """
    tested = split(groups, 2) == 1
    if not tested.any():
        raise ValueError("groups has one group only, expected at least two: one to fit, one to test")
    model = fitted(signatures[~tested], gaps[~tested], [g for g, out in zip(groups, tested) if not out], features)
    predicted = model.predict(signatures[tested])
    left = gaps[tested] - predicted
    figures = {
        "networks": int(tested.sum()),
        "r2": r_squared(gaps[tested], predicted),
        "rank correlation": conditional_rank_correlation(gaps[tested], predicted, [0] * int(tested.sum())),
        "mean absolute error": float(np.abs(left).mean()),
    }
    quantiles = {level: float(np.quantile(left, float(level))) for level in ("0.05", "0.5", "0.95")}
    return replace(model, residuals=quantiles, about={**model.about, "fitted on": fitted_on, "tested": figures})


def fitted(x: Matrix, gaps: Vector, groups: Sequence[object], features: Sequence[str] = FEATURES) -> LinearGapModel:
    """Ridge regression; its penalty has the smallest error when whole `groups` of networks are left out."""
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    z, centre = (x - mean) / scale, gaps.mean()
    fold_of = split(groups, 5)
    errors = []
    for ridge in RIDGES:
        error = 0.0
        for fold in np.unique(fold_of):
            out = fold_of == fold
            if out.all():
                continue
            part = gaps[~out].mean()
            weights = _ridge(z[~out], gaps[~out] - part, ridge)
            error += float(((gaps[out] - part - z[out] @ weights) ** 2).sum())
        errors.append(error)
    best = RIDGES[int(np.argmin(errors))]
    return LinearGapModel(
        features=tuple(features),
        mean=mean.tolist(),
        scale=scale.tolist(),
        coefficients=_ridge(z, gaps - centre, best).tolist(),
        intercept=float(centre),
        least=x.min(axis=0).tolist(),
        most=x.max(axis=0).tolist(),
        residuals={},
        about={"ridge": best, "networks": len(gaps)},
    )


def split(groups: Sequence[object], parts: int) -> Int[np.ndarray, " networks"]:
    """The part of each network: whole groups are drawn at random, always in the same way."""
    names, group_of = np.unique(np.asarray([str(group) for group in groups]), return_inverse=True)
    part_of: Int[np.ndarray, " networks"] = np.random.default_rng(0).permutation(len(names))[group_of] % parts
    return part_of


def r_squared(gaps: Vector, predicted: Vector) -> float:
    """1 − Σ (gap − prediction)²/Σ (gap − mean gap)²."""
    return float(1 - ((gaps - predicted) ** 2).sum() / ((gaps - gaps.mean()) ** 2).sum())


def conditional_rank_correlation(gaps: Vector, predicted: Vector, groups: Sequence[object]) -> float:
    """Kendall's τ_b between gap and prediction inside each group, its mean over groups of at least three networks."""
    from scipy.stats import kendalltau

    names = np.asarray([str(group) for group in groups])
    found = []
    for name in np.unique(names):
        here = names == name
        if here.sum() >= 3 and np.ptp(gaps[here]) > 0:
            tau = float(kendalltau(gaps[here], predicted[here]).statistic) if np.ptp(predicted[here]) > 0 else 0.0
            found.append(tau)
    return float(np.mean(found)) if found else float("nan")


def stored_model() -> LinearGapModel:
    """The coefficients that the package has."""
    text = resources.files("widemargin.diagnostics").joinpath(STORED).read_text(encoding="utf-8")
    values = json.loads(text)
    return LinearGapModel(**{**values, "features": tuple(values["features"])})


def _ridge(z: Matrix, y: Vector, penalty: float) -> Float64[np.ndarray, " features"]:
    found: Float64[np.ndarray, " features"] = np.linalg.solve(z.T @ z + penalty * np.eye(z.shape[1]), z.T @ y)
    return found
