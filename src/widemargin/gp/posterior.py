"""Closed-form posterior of the NN-GP model, given labels scaled to a margin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from widemargin.checks import check_count, check_flag, check_floating, check_number, check_signs
from widemargin.gp.gram import factor
from widemargin.gp.kernel import kernel_into, unit_pair

TEST_POINTS = 1024  # test points solved for at once without the covariance
NEGATIVE = 1e-8  # tolerated negative variance due to rounding, for a prior variance of 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """N(γ·C_1, σ^{2L}·C_2): the prior at the test points given the labels γ·Y of X (farhang §6.1–6.2).

    `c1` is C_1 = Σ̂_xX Σ̂_XX⁻¹ Y, the mean for margin 1; `c2` is C_2 = Σ̂_xx − Σ̂_xX Σ̂_XX⁻¹ Σ̂_Xx, None where `covariance`
    was False, and `c2_diagonal` its diagonal, the variances for σ = 1. `depth` is the number L of weight matrices,
    `margin` the scale γ of the labels, `sigma` the prior scale σ of each layer's weights.
    """

    c1: Float64[Tensor, " test"]
    c2_diagonal: Float64[Tensor, " test"]
    c2: Float64[Tensor, "test test"] | None
    depth: int
    margin: float
    sigma: float

    @property
    def mean(self) -> Float64[Tensor, " test"]:
        """γ·C_1."""
        return self.margin * self.c1

    @property
    def variance(self) -> Float64[Tensor, " test"]:
        """The diagonal of σ^{2L}·C_2."""
        return self.sigma ** (2 * self.depth) * self.c2_diagonal

    @property
    def covariance(self) -> Float64[Tensor, "test test"]:
        """σ^{2L}·C_2. Erratum: the second line of the paper's distribution, with hats, drops σ^{2L}."""
        return self.sigma ** (2 * self.depth) * self._c2()

    @property
    def normalized_margin(self) -> float:
        """γ/σ^L, which sets the signal-to-noise ratio."""
        return self.margin / self.sigma**self.depth

    @property
    def relative_spread(self) -> float:
        """√(mean variance / mean squared mean) over the test points, which falls as 1/(γ/σ^L)."""
        return math.sqrt(float(self.c2_diagonal.mean() / self.c1.square().mean())) / self.normalized_margin

    def at(self, *, margin: float | None = None, sigma: float | None = None) -> Posterior:
        """The posterior for another margin or scale: C_1 and C_2 depend on neither, and are shared."""
        margin = self.margin if margin is None else margin
        sigma = self.sigma if sigma is None else sigma
        check_number("margin", margin, above=0.0)
        check_scale(sigma, self.depth)
        other = replace(self, margin=margin, sigma=sigma)
        if "c2_root" in vars(self):
            vars(other)["c2_root"] = self.c2_root
        return other

    @cached_property
    def c2_root(self) -> Float64[Tensor, "test test"]:
        """R with R·Rᵀ = C_2: the Cholesky factor, or, where C_2 is singular, from its eigenvectors."""
        c2 = self._c2()
        root, info = torch.linalg.cholesky_ex(c2)
        if int(info) == 0:
            return root
        values, vectors = torch.linalg.eigh(c2)
        return vectors.mul_(values.clamp_min_(0.0).sqrt_())

    def _c2(self) -> Tensor:
        if self.c2 is None:
            raise ValueError("covariance is False for this posterior, expected True: it has variances only")
        return self.c2


@torch.no_grad()
def posterior(
    train_x: Float[Tensor, "n ..."],
    train_y: Shaped[Tensor, " n"],
    test_x: Float[Tensor, "m ..."],
    depth: int,
    margin: float = 1.0,
    sigma: float = 1.0,
    *,
    jitter: float = 0.0,
    covariance: bool = True,
) -> Posterior:
    """The exact distribution at `test_x` of functions of the NN-GP prior that interpolate (X, γ·Y).

    N(γ·C_1, σ^{2L}·C_2), C_1 = Σ̂_xX Σ̂_XX⁻¹ Y, C_2 = Σ̂_xx − Σ̂_xX Σ̂_XX⁻¹ Σ̂_Xx, with `gp.kernel` as Σ̂. Source: farhang
    §6.1. Erratum: the second line there, with hats, drops σ^{2L} from the variance.

    Computed in float64 on the device of the tensors. For n training and m test points it allocates n² numbers, and
    m·(n + m) more for the covariance or 1024·n more without.

    Args:
        train_x: samples on the sphere of radius √d_0 (`wm.data.to_sphere`); images are flattened.
        train_y: labels −1.0 and 1.0.
        test_x: samples on the same sphere.
        depth: number L of weight matrices.
        margin: γ > 0, the scale of the labels.
        sigma: σ > 0, the prior scale of each layer's weights.
        jitter: added to the diagonal of Σ̂_XX, whose entries are 1: a noise of variance jitter·σ^{2L} on the labels. A
            singular Gram matrix raises an error that names points that occur twice.
        covariance: whether to keep the whole of C_2, needed for draws, or its diagonal only.
    """
    check_count("depth", depth)
    check_number("margin", margin, above=0.0)
    check_scale(sigma, depth)
    check_number("jitter", jitter, least=0.0)
    check_flag("covariance", covariance)
    train, test = unit_pair(train_x, test_x, ("train_x", "test_x"))
    check_labels(train_y, len(train), "train_y", "train_x")
    if train_y.device != train.device:
        raise ValueError(f"train_y is on {train_y.device}, but train_x is on {train.device}")
    lower = factor(train, depth, jitter)
    targets = torch.linalg.solve_triangular(lower, train_y.to(torch.float64).unsqueeze(1), upper=False).squeeze(1)
    c1, c2_diagonal = torch.empty_like(test[:, 0]), torch.empty_like(test[:, 0])
    at_once = len(test) if covariance else min(TEST_POINTS, len(test))
    held = torch.empty(at_once, len(train), dtype=torch.float64, device=train.device)
    for start in range(0, len(test), at_once):
        part = slice(start, start + at_once)
        v = held[: len(test[part])]
        kernel_into(v, test[part], train, depth)
        torch.linalg.solve_triangular(lower, v.mT, upper=False, out=v.mT)  # L⁻¹Σ̂_Xx, in place
        torch.mv(v, targets, out=c1[part])
        c2_diagonal[part] = 1.0 - torch.linalg.vector_norm(v, dim=1).square_()
    del lower
    _check_variances(c2_diagonal)
    c2 = None
    if covariance:
        c2 = torch.empty(len(test), len(test), dtype=torch.float64, device=test.device)
        kernel_into(c2, test, test, depth)
        c2.diagonal().fill_(1.0)
        c2.addmm_(held, held.T, alpha=-1.0)
        c2.diagonal().clamp_min_(0.0)
    c2_diagonal.clamp_min_(0.0)
    return Posterior(c1=c1, c2_diagonal=c2_diagonal, c2=c2, depth=depth, margin=float(margin), sigma=float(sigma))


def check_scale(sigma: float, depth: int) -> None:
    """Raise unless `sigma` and σ^{2L}, the variance of the prior, are positive finite numbers."""
    check_number("sigma", sigma, above=0.0)
    variance = float(torch.tensor(float(sigma), dtype=torch.float64) ** (2 * depth))
    if not 0 < variance < math.inf:
        raise ValueError(f"sigma is {sigma:g}, whose prior variance sigma^(2·{depth}) is {variance:g} in float64")


def check_labels(y: Shaped[Tensor, " n"], n: int, name: str, samples: str) -> None:
    """Raise unless `y` is n float labels −1 and +1, one for each of `samples`."""
    check_floating(y, name, "[n] of -1.0 and 1.0")
    if y.shape != (n,):
        raise ValueError(f"{name} has shape {list(y.shape)}, expected [{n}], one label for each sample of {samples}")
    check_signs(y, name)


def _check_variances(c2_diagonal: Float64[Tensor, " m"]) -> None:
    """Raise where a variance is further below 0 than rounding explains: the linear system is ill-conditioned."""
    at = int(c2_diagonal.argmin())
    if not float(c2_diagonal[at]) >= -NEGATIVE:
        cure = "the Gram matrix of train_x is nearly singular, pass a larger jitter"
        raise ValueError(f"test_x has variance {float(c2_diagonal[at]):g} at index {at}, expected 0 to 1: {cure}")
