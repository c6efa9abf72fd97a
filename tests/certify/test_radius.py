"""Certified margins and radii: against a slow oracle, against random points, and where the truth is known."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import oracles_bracket as oracles
from geometry.networks import CASES
from widemargin import bounds, certify
from widemargin.certify.radius import Method

METHODS: tuple[Method, ...] = ("ibp", "crown-ibp", "crown")
NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)


def labelled(model: nn.Module, x: Tensor) -> Tensor:
    """The network's own answers as labels."""
    with torch.no_grad():
        scores = model.eval()(x)
    return scores.argmax(dim=1) if scores.shape[1] > 1 else scores.sign().flatten()


def in_ball(shape: torch.Size, p: float, count: int) -> Tensor:
    """Points of the unit l_p ball, half of them on its surface."""
    x = torch.randn(count, *shape, dtype=torch.float64)
    x[::3] = x[::3] * (torch.rand_like(x[::3]) < 0.2)  # few entries: the corners of the l_1 ball
    x[1::3] = x[1::3].sign()  # the corners of the l_∞ ball
    x = x / torch.linalg.vector_norm(x.flatten(1), p, dim=1).clamp(min=1e-9).view(-1, *[1] * len(shape))
    x[::2] *= torch.rand(len(x[::2]), dtype=x.dtype).view(-1, *[1] * len(shape))
    return x


def mlp(slope: float = 0.0) -> nn.Sequential:
    act = nn.LeakyReLU(slope) if slope else nn.ReLU()
    return nn.Sequential(nn.Linear(4, 8), act, nn.Linear(8, 7), act, nn.Linear(7, 6), act, nn.Linear(6, 3)).double()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("slope", [0.0, -0.3, 1.7])
def test_the_slow_oracle_says_the_same(method: Method, p: float, slope: float) -> None:
    torch.manual_seed(0)
    model, x = mlp(slope), torch.randn(3, 4).double()
    y = labelled(model, x)
    for radius in (0.05, 0.4):
        found = certify.margin_bound(model, x, y, radius, p=p, method=method)
        expected = [oracles.margin(model, x[i], int(y[i]), radius, p, method) for i in range(3)]
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_no_point_of_the_ball_is_below_the_bound(name: str, p: float) -> None:
    make, shape = CASES[name]
    torch.manual_seed(1)
    model = make().double().eval()
    x = torch.randn(2, *shape).double()
    y = labelled(model, x)
    others = model(x).shape[1]
    for radius in (0.05, 0.5):
        near = (x[:, None] + radius * in_ball(torch.Size(shape), p, 200)).detach()
        with torch.no_grad():
            scores = model(near.flatten(0, 1)).unflatten(0, (2, 200))
        for method in METHODS:
            bound = certify.margin_bound(model, x, y, radius, p=p, method=method)
            for i in range(2):
                if others == 1:
                    gaps = scores[i] * y[i]
                else:
                    rest = [c for c in range(others) if c != int(y[i])]
                    gaps = scores[i, :, int(y[i]), None] - scores[i][:, rest]
                assert (gaps >= bound[i]).all(), method


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_pools_are_bounded_from_both_sides(p: float) -> None:
    torch.manual_seed(9)
    model = nn.Sequential(nn.MaxPool1d(3, 2), nn.Flatten(), nn.Linear(3, 3)).double()
    x = 0.3 * torch.randn(4, 1, 7).double()
    y = labelled(model, x)
    for i, bound in enumerate(certify.margin_bound(model, x, y, 0.5, p=p, method="crown-ibp")):
        with torch.no_grad():
            scores = model(x[i] + 0.5 * in_ball(torch.Size((1, 7)), p, 2000))
        rest = [c for c in range(3) if c != int(y[i])]
        gaps = (scores[:, int(y[i]), None] - scores[:, rest]).amin(dim=0)
        assert (gaps >= bound).all()
        assert (gaps - bound < 1.5).all()


def test_a_binary_network_may_answer_without_a_column() -> None:
    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.last = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.act(self.first(x))).squeeze(1)

    torch.manual_seed(10)
    model, x = Squeezed().double(), torch.randn(5, 4).double()
    y = model(x).detach().sign()
    flat = certify.radius(model, x, y).values
    column = certify.radius(nn.Sequential(model.first, model.act, model.last), x, y).values
    torch.testing.assert_close(flat, column, rtol=1e-9, atol=0)
    assert (flat > 0).all()


@pytest.mark.parametrize("p", NORMS)
def test_a_linear_network_is_exact(p: float) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)).double()
    x = torch.randn(20, 3, 4).double()
    y = labelled(model, x)
    scores, weight = model(x).detach(), model.get_parameter("1.weight").detach()
    q = 1.0 if p == math.inf else math.inf if p == 1 else p / (p - 1)
    slopes = torch.linalg.vector_norm(weight[:, None] - weight, q, dim=2)[y]
    gaps = scores.gather(1, y[:, None]) - scores
    true = (gaps / slopes).scatter(1, y[:, None], math.inf).amin(dim=1)
    found = certify.radius(model, x, y, p=p).values
    assert (found <= true).all()
    assert torch.allclose(found, true, rtol=1e-8)


@pytest.mark.parametrize("name", ["mlp", "cnn", "signals"])
def test_a_linear_bound_is_never_below_the_interval(name: str) -> None:
    make, shape = CASES[name]
    torch.manual_seed(3)
    model, x = make(), torch.randn(5, *shape)
    y = labelled(model, x)
    for radius in (0.01, 0.1, 1.0):
        ibp, crown_ibp, crown = (certify.margin_bound(model, x, y, radius, method=m) for m in METHODS)
        assert (crown_ibp >= ibp).all()
        assert (crown >= ibp).all()
    ibp, crown_ibp, crown = (certify.radius(model, x, y, method=m).values for m in METHODS)
    assert crown_ibp.mean() > 1.5 * ibp.mean()
    assert crown.mean() >= 0.99 * crown_ibp.mean()


def test_intervals_shrink_with_the_radius() -> None:
    torch.manual_seed(4)
    model, x = mlp(), torch.randn(6, 4)
    y = labelled(model, x.double())
    rows = torch.stack([certify.margin_bound(model, x, y, r, method="ibp") for r in (0.0, 0.01, 0.1, 0.5, 2.0)])
    assert (rows.diff(dim=0) < 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_certified_radius_is_certified(method: Method) -> None:
    torch.manual_seed(5)
    make, shape = CASES["cnn"]
    model, x = make(), torch.randn(4, *shape)
    y = labelled(model, x)
    radii = certify.radius(model, x, y, method=method).values
    assert (radii > 0).all()
    model = model.double()
    for i, radius in enumerate(radii.tolist()):
        near = x[i].double() + radius * in_ball(torch.Size(shape), 2.0, 1000)
        with torch.no_grad():
            assert (model(near).argmax(dim=1) == y[i]).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("p", [1.0, 1.003, 1.01])
def test_small_weights_count_for_p_close_to_1(method: Method, p: float) -> None:
    """The scores depend on a channel of small weights only, whose q-th powers are 0 in float64."""
    torch.manual_seed(12)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)).double()
    first, last = model[0].weight, model[3].weight
    assert isinstance(first, Tensor)
    assert isinstance(last, Tensor)
    with torch.no_grad():
        first[1] *= 1e-5
        last[:, 16:] *= 1e5
        last[:, :16] = 0
    x = torch.randn(3, 1, 4, 4).double()
    y = labelled(model, x)
    radii = certify.radius(model, x, y, p=p, method=method).values
    assert (radii > 0).all()
    corners = torch.cat((torch.eye(16), -torch.eye(16))).double().view(1, 32, 1, 4, 4)
    near = x[:, None] + radii.view(3, 1, 1, 1, 1) * corners
    assert (labelled(model, near.flatten(0, 1)).view(3, 32) == y[:, None]).all()


def test_singles_are_as_in_a_batch_and_the_start_hardly_matters() -> None:
    torch.manual_seed(6)
    model, x = mlp(), torch.randn(5, 4).double()
    y = labelled(model, x)
    whole = certify.radius(model, x, y).values
    each = torch.cat([certify.radius(model, x[i : i + 1], y[i : i + 1]).values for i in range(5)])
    assert torch.allclose(whole, each, rtol=1e-6)
    far = certify.radius(model, x, y, method="crown-ibp", start=torch.full((5,), 30.0), steps=25).values
    fine = certify.radius(model, x, y, method="crown-ibp", steps=25).values
    assert torch.allclose(far, fine, rtol=0.02)


def test_misclassified_samples_have_no_radius() -> None:
    torch.manual_seed(7)
    model, x = mlp(), torch.randn(6, 4).double()
    y = labelled(model, x)
    wrong = (y + 1) % 3
    assert (certify.radius(model, x, wrong).values == 0).all()
    assert (certify.radius(model, x, y).values > 0).all()


def test_memory_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(8)
    make, shape = CASES["cnn"]
    model, x = make(), torch.randn(3, *shape)
    y = labelled(model, x)
    whole = certify.margin_bound(model, x, y, 0.05)
    monkeypatch.setattr(sys.modules["widemargin.certify.radius"], "_NUMBERS", 300)  # certify.radius is the function
    assert torch.allclose(certify.margin_bound(model, x, y, 0.05), whole, atol=1e-9)


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, func: object, types: object, args: Any = (), kwargs: Any = None) -> object:
        out = func(*args, **(kwargs or {}))  # type: ignore[operator]
        self.entries = max([self.entries, *(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))])
        return out


def test_memory_is_quadratic_in_the_number_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = 24
    monkeypatch.setattr(sys.modules["widemargin.certify.radius"], "_NUMBERS", 1)  # one sample at a time
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, classes)).double()
    x, y = torch.randn(classes, 6).double(), torch.arange(classes)
    with Largest() as seen:
        certify.radius(model, x, y, method="crown-ibp", steps=1)
    assert classes**2 / 2 < seen.entries <= classes**2
    with Largest() as seen:
        bounds.input_margin(model, x, y, directions=0)
    assert seen.entries <= classes**2


def test_what_is_not_known_is_named() -> None:
    x, y = torch.randn(2, 4), torch.tensor([0, 1])
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    with pytest.raises(TypeError, match=r"layer '1' is Tanh\(\)"):
        certify.radius(model, x, y)
    good = mlp().float()
    with pytest.raises(ValueError, match="x has nan"):
        certify.radius(good, x * math.nan, y)
    with pytest.raises(ValueError, match="radius is -1"):
        certify.margin_bound(good, x, y, -1.0)
    with pytest.raises((TypeError, ValueError), match="method"):
        certify.radius(good, x, y, method="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="steps is 0"):
        certify.radius(good, x, y, steps=0)
    with pytest.raises(ValueError, match="start has"):
        certify.radius(good, x, y, start=torch.tensor([1.0, math.inf]))
    with pytest.raises(ValueError, match="start has"):
        certify.radius(good, x, y, start=torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"p is 0\.5"):
        certify.radius(good, x, y, p=0.5)
    with pytest.raises(ValueError, match="y has 7 at index 0"):
        certify.radius(good, x, torch.tensor([7, 0]))
