"""The generalization bound of the optimal margin distribution loss (odn, Theorem 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn

from widemargin import norms, places
from widemargin.bounds.chain import LayerChain, Link, chain_of
from widemargin.bounds.cushions import Cushions, cushions
from widemargin.bounds.result import Assumption, Bound
from widemargin.checks import check_batch, check_choice, check_labels, check_number
from widemargin.margins.measurement import measure
from widemargin.margins.normalized import Biases
from widemargin.modules import predict, unwrap
from widemargin.types import Labels

CushionForm = Literal["printed", "squared"]
LogForm = Literal["printed", "proof"]


@dataclass(frozen=True, kw_only=True)
class OdnLayer:
    """A layer's share of the sum: stable_rank/(μ_i μ_{i→}), with a squared denominator for `cushion_form="squared"`."""

    name: str
    stable_rank: Annotated[float, "stable rank"]
    cushion: Annotated[float, "μ_i"]
    minimal_cushion: Annotated[float, "μ_i→"]
    share: float


@dataclass(frozen=True, kw_only=True)
class OdnBound(Bound):
    """`value` = L̂_{r,θ} + √(complexity + log), with every term of it."""

    source: ClassVar[str] = (
        "odn, Theorem 1, with constant 1; r and θ are distances in input space, its Lemma 1 is about scores"
    )
    empirical_loss: Annotated[float, "L̂_r,θ"]
    complexity: Annotated[float, "c²L²ρ ln(Lρ)((r+θ)/(r−θ))²Σ/m"]
    log: Annotated[float, "ln term"]
    ratio: Annotated[float, "((r+θ)/(r−θ))²"]
    r: float
    theta: float
    delta: float
    depth: Annotated[int, "L"]
    layers: tuple[OdnLayer, ...]
    cushions: Cushions
    cushion_form: CushionForm
    log_form: LogForm
    share_within: Annotated[float, "share ‖f‖ ≤ r+θ"]
    without_margin: int
    samples: Annotated[int, "m"]


def odn(
    model: nn.Module,
    x: Tensor,
    y: Labels,
    *,
    r: float,
    theta: float,
    delta: float = 0.05,
    cushion_form: CushionForm = "printed",
    log_form: LogForm = "printed",
    probes: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    biases: Biases = "refuse",
) -> OdnBound:
    """L_0 ≤ L̂_{r,θ} + √((c²L²ρ ln(Lρ)(r+θ)² Σ_i ‖W_i‖_F²/(‖W_i‖_2² μ_i μ_{i→}) + ln(Lm/δ)) / (m(r−θ)²)) (Theorem 1).

    L̂_{r,θ} is the share of samples whose linearised distance at the input, f_y − max f_i over the l_2 norm of its
    gradient (the printed one lacks the norm bars), is ≤ r−θ or ≥ r+θ; a sample without a gradient counts as
    outside the band. The theorem is up to a constant, taken as 1 here. It assumes ‖f(x)‖_2 ≤ r+θ with ‖W_L‖_2 = 1: the
    scores are divided by ‖W_L‖_2 and the share of samples where that holds is reported. r and θ are distances in input
    space while Lemma 1 is about scores (errata 7).

    Args:
        model: a chain of layers without biases, see `chain.chain_of`.
        x: the training inputs.
        y: class indices, or ±1 for a network with one output.
        r: the centre of the band without loss.
        theta: its half-width, 0 < θ < r.
        delta: the probability that the bound fails.
        cushion_form: μ_i μ_{i→} as printed, or squared as in Arora et al. 2018 (errata 6).
        log_form: ln(Lm/δ) divided by m(r−θ)² as printed, or by m as the proof has it; for r−θ > 1 the printed value
            is the smaller one, and too small (errata 7).
        probes: random vectors of the interlayer Jacobians, 0 for exact norms, see `cushions.cushions`.
        seed: seed of the probes.
        batch_size: samples at a time.
        biases: refuse a network with biases, or run it with them and leave them out of the norms.
    """
    check_number("r", r, above=0.0)
    check_number("theta", theta, above=0.0, below=float(r))
    check_number("delta", delta, above=0.0, below=1.0)
    check_choice("cushion_form", cushion_form, ("printed", "squared"))
    check_choice("log_form", log_form, ("printed", "proof"))
    check_batch(x, "x")
    check_labels(y, len(x))
    found = cushions(model, x, probes=probes, seed=seed, batch_size=batch_size, biases=biases)
    chain = chain_of(model, x, biases=biases)
    distances, sizes = _margins(model, x, y, batch_size)
    layers = tuple(_layer(link, found, 2 if cushion_form == "squared" else 1) for link in chain.weights)
    depth, m = len(layers), len(x)
    ratio = ((r + theta) / (r - theta)) ** 2
    summed = sum(layer.share for layer in layers)
    complexity = found.contraction**2 * depth**2 * found.width * math.log(depth * found.width) * ratio * summed / m
    log = math.log(depth * m / delta) / m / ((r - theta) ** 2 if log_form == "printed" else 1.0)
    loss = float(((distances <= r - theta) | (distances >= r + theta) | distances.isnan()).double().mean())
    within = float((sizes / chain.weights[-1].norm <= r + theta).double().mean())
    return OdnBound(
        value=loss + math.sqrt(complexity + log),
        empirical_loss=loss,
        complexity=complexity,
        log=log,
        ratio=ratio,
        r=float(r),
        theta=float(theta),
        delta=delta,
        depth=depth,
        layers=layers,
        cushions=found,
        cushion_form=cushion_form,
        log_form=log_form,
        samples=m,
        share_within=within,
        without_margin=int(distances.isnan().sum()),
        assumptions=_assumptions(chain, within),
    )


def _assumptions(chain: LayerChain, within: float) -> tuple[Assumption, ...]:
    between = [link for link in chain.links if not link.is_weight]
    return (
        chain.no_biases,
        Assumption(
            text="‖f(x)‖_2 ≤ r+θ with ‖W_L‖_2 = 1", holds=within == 1.0, found=f"on {100 * within:.1f} % of the samples"
        ),
        Assumption(
            text="activations are plain ReLUs",
            holds=all(link.is_plain for link in between),
            found=", ".join(sorted({type(link.module).__name__ for link in between})) or "none",
        ),
    )


def _layer(link: Link, found: Cushions, power: int) -> OdnLayer:
    cushion, minimal = found.layer[link.name], found.minimal[link.name]
    rank, product = (link.frobenius / link.norm) ** 2, (cushion * minimal) ** power
    share = rank / product if product > 0 else math.inf
    return OdnLayer(name=link.name, stable_rank=rank, cushion=cushion, minimal_cushion=minimal, share=share)


def _margins(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """The linearised l_2 distance at the input, and ‖f(x)‖_2, of every sample."""
    network = unwrap(model)
    measured_at = measure(network, (x, y), at=(places.INPUT,), batch_size=batch_size, progress=False)
    scores = predict(network, x, batch_size=batch_size).double().reshape(len(x), -1)
    return measured_at.margins[places.INPUT].double(), norms.lp(scores, 2.0)
