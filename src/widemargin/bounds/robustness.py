"""The generalization error of a classifier with an input margin (sokolic, Theorems 1 and 4); growth with depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, get_args

from torch import Tensor

from widemargin.bounds.covering import Covering, GreedyCovering
from widemargin.bounds.result import Assumption, Bound, Certificate, MarginEstimate, power
from widemargin.checks import check_batch, check_count, check_number, check_several, check_type

_LN2 = math.log(2)


@dataclass(frozen=True, kw_only=True)
class RobustnessBound(Bound):
    """`value` = ε + M√((2K ln 2 + 2 ln(1/δ))/m) with K = classes·N_{γ/2}, ε = 0 and M = 1 for the 0-1 loss.

    The number of balls is stored as its logarithm: in many dimensions it overflows.
    """

    margin: Annotated[float, "γ"]
    log_covering: Annotated[float, "ln N_γ/2"]
    log_cells: Annotated[float, "ln K"]
    covering: Covering
    classes: int
    loss_gap: Annotated[float, "ε"] = 0.0
    largest_loss: Annotated[float, "M"] = 1.0
    delta: Annotated[float, "δ"]
    samples: Annotated[int, "m"]
    certified: bool

    @property
    def source(self) -> str:
        """The theorem, and whether margin and covering are proved."""
        kind = "" if self.certified else ", an ESTIMATE: its margin or its covering is not proved"
        return f"robustness bound of the generalization error (sokolic, Theorems 1 and 4){kind}"


def robustness(
    margins: Certificate | MarginEstimate, x: Tensor, *, classes: int, covering: Covering, delta: float = 0.05
) -> RobustnessBound:
    """|l_exp − l_emp| ≤ ε + M√((2K ln 2 + 2 ln(1/δ))/m), K = classes·N_{γ/2}, with probability 1 − δ (Theorem 1).

    A classifier whose training samples all have an input margin above γ is (2N_{γ/2}, 0)-robust (Theorem 4; errata 5:
    the number of classes times N for more than two). γ is the smallest margin; if one is 0 (a misclassified sample),
    the value is infinite. The loss is the 0-1 loss: M = 1, ε = 0.

    Args:
        margins: of the training samples, from `input_margin`.
        x: the training inputs.
        classes: number of classes.
        covering: `GaussianMixture`, `SparseDictionary`, or `GreedyCovering` of the samples.
        delta: the probability that the bound fails.
    """
    if not isinstance(margins, Certificate | MarginEstimate):
        raise TypeError(f"margins is a {type(margins).__name__}, expected a Certificate or a MarginEstimate")
    check_batch(x, "x")
    check_type("covering", covering, get_args(Covering), "GaussianMixture, SparseDictionary or GreedyCovering")
    if len(margins.values) != len(x):
        raise ValueError(f"margins has {len(margins.values)} entries, but x has {len(x)} samples")
    check_count("classes", classes, least=2)
    check_number("delta", delta, above=0.0, below=1.0)
    values = margins.values.double()
    positive = int((values > 0).sum())
    gamma = float(values.min()) if positive == len(values) else 0.0  # also if a value is NaN
    log_covering = covering.log_number(gamma / 2, x) if gamma > 0 else math.inf
    balls = classes * power(math.e, log_covering)
    measured = isinstance(covering, GreedyCovering)
    return RobustnessBound(
        value=math.sqrt((2 * balls * _LN2 - 2 * math.log(delta)) / len(x)),
        margin=gamma,
        log_covering=log_covering,
        log_cells=math.log(classes) + log_covering,
        covering=covering,
        classes=classes,
        delta=delta,
        samples=len(x),
        certified=isinstance(margins, Certificate) and not measured,
        assumptions=(
            Assumption(
                text="every training sample has an input margin above γ > 0",
                holds=positive == len(values),
                found=f"{positive} of {len(values)} have one, by {margins.name}",
            ),
            Assumption(
                text="N balls cover the space of inputs",
                holds=None,
                found="counted on the samples" if measured else f"supposed: {covering}",
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Growth:
    """(21) and (22) by depth, each with constant 1."""

    depths: tuple[int, ...]
    frobenius: tuple[float, ...]
    robustness: tuple[float, ...]


def growth(
    depths: Sequence[int],
    margins: Sequence[float],
    x: Tensor,
    *,
    covering: Covering,
    product: float = 1.0,
    classifier: float = 1.0,
    samples: int | None = None,
) -> Growth:
    """2^L‖v‖_2 Π‖W_i‖_F/√m (21) against √(N_{γ/2})/√m (22), at each depth L with its margin γ (sokolic, §IV-A).

    With the product of norms fixed, (21) doubles with each layer; (22) depends on the margin alone, and decreases if
    deeper networks reach larger margins.

    Args:
        depths: numbers L of layers below the classifier.
        margins: the input margin γ > 0 reached at each depth.
        x: inputs, for the covering number.
        covering: as in `robustness`.
        product: Π‖W_i‖_F, the same at every depth.
        classifier: ‖v‖_2.
        samples: m; by default the number of inputs.
    """
    check_batch(x, "x")
    check_type("covering", covering, get_args(Covering), "GaussianMixture, SparseDictionary or GreedyCovering")
    check_several("depths", depths, "[1, 2, 3]")
    check_several("margins", margins, "[0.1, 0.2, 0.3]")
    if len(depths) != len(margins):
        raise ValueError(f"margins has {len(margins)} entries, but depths has {len(depths)}")
    for index, (depth, gamma) in enumerate(zip(depths, margins)):
        check_count(f"depths[{index}]", depth)
        check_number(f"margins[{index}]", gamma, above=0.0)
    check_number("product", product, least=0.0)
    check_number("classifier", classifier, least=0.0)
    if samples is not None:
        check_count("samples", samples)
    root = math.sqrt(len(x) if samples is None else samples)
    return Growth(
        depths=tuple(depths),
        frobenius=tuple(power(2.0, depth) * classifier * product / root for depth in depths),
        robustness=tuple(power(math.e, covering.log_number(gamma / 2, x) / 2) / root for gamma in margins),
    )
