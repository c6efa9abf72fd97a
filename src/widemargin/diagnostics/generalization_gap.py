"""The generalization gap of a network, predicted from the margins of its training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from widemargin.checks import check_module, check_type
from widemargin.diagnostics.gap_features import FEATURES, MarginSignature, margin_signature
from widemargin.diagnostics.gap_model import LinearGapModel, stored_model

LEVEL = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class GapPrediction:
    """The predicted gap, training minus test accuracy, with a prediction interval.

    `low` to `high` has the share `level` of the gaps of networks that the model was not fitted to. It holds for
    networks like those in `fitted_on`; `outside` names the features that lie outside their range, and `tested` has the
    figures of the model on the held-out networks.
    """

    gap: float
    low: float
    high: float
    level: float
    training_accuracy: float
    outside: tuple[str, ...]
    fitted_on: str
    tested: dict[str, Any]
    signature: MarginSignature

    def __str__(self) -> str:
        lines = [
            f"gap {100 * self.gap:.1f} points, {100 * self.low:.1f} to {100 * self.high:.1f} with {self.level:.0%} "
            f"(training accuracy {self.training_accuracy:.1%} of {self.signature.samples:,} samples)",
            f"fitted on {self.fitted_on}; R² {self.tested['r2']:.2f} on {self.tested['networks']} of them, held out",
        ]
        if self.tested["r2"] <= 0:
            lines.append("a mean of the gaps predicts the held-out networks better than this model does")
        if self.outside:
            lines.append(
                f"{len(self.outside)} of {len(FEATURES)} features are outside the range of these networks, first "
                f"{self.outside[0]}: the interval does not hold"
            )
        return "\n".join(lines)


def predict_gap(
    model: nn.Module,
    train: object,
    *,
    samples: int = 1000,
    batch_size: int = 250,
    seed: int = 0,
    gap_model: LinearGapModel | None = None,
) -> GapPrediction:
    """Predict training minus test accuracy from the training samples alone.

    A linear model of the logarithms of 20 numbers: quartiles and fences of the normalized margins at four places
    (Jiang et al., ICLR 2019; `diagnostics.gap_features`). Its coefficients come with the package; `fitted_on` of the
    result says from which networks. For other tasks fit your own: `diagnostics.fit_gap_model`.

    Args:
        model: a trained classifier.
        train: the samples that it was trained on, as of `fit`.
        samples: at most so many of them are measured.
        batch_size: samples at a time.
        seed: of the choice of samples.
        gap_model: another model, from `diagnostics.fit_gap_model`.
    """
    check_module(model)
    if gap_model is not None:
        check_type("gap_model", gap_model, LinearGapModel, "a model of diagnostics.fit_gap_model")
    found = stored_model() if gap_model is None else gap_model
    signature = margin_signature(model, train, samples=samples, batch_size=batch_size, seed=seed)
    values = signature.by_name()
    gap = float(found.predict(np.array([[values[name] for name in found.features]]))[0])
    low, high = (gap + found.residuals[level] for level in ("0.05", "0.95"))
    return GapPrediction(
        gap=gap,
        low=low,
        high=high,
        level=LEVEL,
        training_accuracy=signature.accuracy,
        outside=found.outside(values),
        fitted_on=found.about["fitted on"],
        tested=found.about["tested"],
        signature=signature,
    )
