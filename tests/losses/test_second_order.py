"""Slopes in the gradient: second points against the double backward, in the margin loss and in regularizers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import widemargin as wm
import zoo
from test_places_wrapped import Backend, dynamo
from widemargin import losses, places, regularizers
from widemargin._autograd import repeated_rng
from widemargin.losses import Hinge, MarginLoss
from widemargin.losses.protocol import is_capturable, stacking_of
from widemargin.margins import second_point
from widemargin.margins.distance import slopes_at
from widemargin.margins.output import differences
from widemargin.margins.second_point import TwoPasses
from widemargin.regularizers import Jacobian, JacobianFrobenius

PLACES = ("input", "1", "3")

MARGINS: dict[str, dict[str, Any]] = {
    "scale-free": {},
    "printed": {"stabilize": None, "penalty": Hinge(gamma=3.0)},
    "l_1": {"p": 1.0},
    "l_3": {"p": 3.0, "at": PLACES},
    "l_inf": {"p": math.inf},
    "several classes and places": {"classes": 3, "at": PLACES, "penalty": Hinge(gamma=5.0)},
    "sum over classes": {"classes": "all", "aggregate": "sum", "cross_entropy": 0.3},
    "late place": {"at": ("3",)},
}

JACOBIANS: dict[str, Any] = {
    "Jacobian, random": Jacobian(weight=0.7),
    "Jacobian, sum": Jacobian(weight=0.7, form="sum"),
    "Jacobian, pairs": Jacobian(weight=0.7, form="pairwise-sum", normalize=False, at="1"),
    "Frobenius": JacobianFrobenius(weight=0.7),
    "Frobenius, exact": JacobianFrobenius(weight=0.7, projections=None, at="1"),
}


def network(activation: Callable[[], nn.Module] = nn.ReLU, *between: nn.Module) -> nn.Sequential:
    """A network of float64, from a seed."""
    torch.manual_seed(0)
    first, second = nn.Linear(6, 20), nn.Linear(20, 15)
    return nn.Sequential(first, activation(), second, activation(), *between, nn.Linear(15, 4)).double()


def batch(size: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, 6, dtype=torch.float64, generator=generator).to(dtype), torch.arange(size) % 4


def both(part: Any) -> tuple[Any, Any]:
    """A loss or regularizer with exact gradients, and by second points; batch statistics frozen in both."""
    settings = {**vars(part), "statistics": "frozen"}
    exact = True if isinstance(part, MarginLoss) else "exact"
    return type(part)(**{**settings, "second_order": exact}), type(part)(**{**settings, "second_order": "second-point"})


def evaluated(part: Any, model: nn.Module, x: Tensor, y: Tensor, *, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Values of a loss or regularizer, and the weight gradients of their mean."""
    torch.manual_seed(seed)
    values = part(model, x, y)
    options: Any = {"allow_unused": True, "materialize_grads": True}
    gradients = torch.autograd.grad(values.mean(), list(model.parameters()), **options)
    return values.detach(), torch.cat([gradient.flatten() for gradient in gradients])


def gap(a: Tensor, b: Tensor) -> float:
    """‖a − b‖/‖b‖."""
    return float((a - b).norm() / b.norm())


def same(part: Any, model: nn.Module, x: Tensor, y: Tensor, tolerance: float = 1e-8) -> None:
    exact, second = (evaluated(one, model, x, y) for one in both(part))
    assert gap(second[0], exact[0]) < tolerance
    assert gap(second[1], exact[1]) < tolerance


@pytest.mark.parametrize("name", MARGINS)
def test_margin_loss_in_a_linear_region(name: str) -> None:
    same(MarginLoss(**MARGINS[name]), network(), *batch())


@pytest.mark.parametrize("name", JACOBIANS)
def test_regularizers_in_a_linear_region(name: str) -> None:
    same(JACOBIANS[name], network(), *batch())


def test_a_second_order_gradient_is_not_that_of_constant_denominators() -> None:
    constant = evaluated(MarginLoss(), network(), *batch())
    second = evaluated(MarginLoss(second_order="second-point"), network(), *batch())
    torch.testing.assert_close(second[0], constant[0])
    assert gap(second[1], constant[1]) > 0.1


def test_softmax_and_binary_networks() -> None:
    same(MarginLoss(read_as="softmax"), network(), *batch(), tolerance=1e-4)
    model, (x, y) = network(nn.ReLU, nn.Linear(15, 15).double()), batch()
    model[-1] = nn.Linear(15, 1).double()
    for part in (MarginLoss(), JACOBIANS["Jacobian, sum"], JACOBIANS["Frobenius"]):
        same(part, model, x, (2 * (y % 2) - 1).double())


@pytest.mark.parametrize("p", [1.5, 2.0, math.inf])
def test_the_error_on_smooth_networks_halves_with_the_step(p: float) -> None:
    model, (x, y) = network(nn.Tanh), batch()
    results = []
    for h in (4e-3, 2e-3, 1e-3, 0.0):
        scores, at = TwoPasses(model).first(x, ("input", "1"))
        outputs = differences(scores, y, classes=2)
        if h == 0:
            with places.watch(model, ("input", "1")) as at:
                outputs = differences(model(x), y, classes=2)
            slopes = slopes_at(at, outputs, q=wm.norms.dual(p), second_order=True)
        else:
            lengths = {name: x.new_tensor([h]) for name in at}
            others = scores.scatter(1, y[:, None], -math.inf).topk(2).indices
            slopes = second_point.slopes(
                at,
                outputs,
                lambda f, others=others: f.gather(1, y[:, None]) - f.gather(1, others),  # type: ignore[misc]
                lengths=lengths,
                p=p,
            )
        slope = torch.stack(list(slopes.values()))
        gradients = torch.autograd.grad(slope.sum(), list(model.parameters()), materialize_grads=True)
        results.append((slope.detach(), torch.cat([g.flatten() for g in gradients])))
    for kind in (0, 1):
        errors = [(result[kind] - results[-1][kind]).norm().item() for result in results[:-1]]
        assert errors[1] / errors[0] == pytest.approx(0.5, abs=0.05)
        assert errors[2] / errors[1] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("part", [MarginLoss(at=("input", "1")), *JACOBIANS.values()], ids=str)
def test_batch_statistics_are_those_of_the_first_pass(part: Any) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(6, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 15), nn.BatchNorm1d(15), nn.ReLU()
    model, (x, y) = nn.Sequential(*layers, nn.Linear(15, 4)).double().train(), batch()
    once = copy.deepcopy(model)
    if isinstance(part, MarginLoss):
        once(x)
    evaluated(both(part)[1], model, x, y)
    torch.testing.assert_close(dict(model.named_buffers()), dict(once.named_buffers()))
    same(part, model, x, y)


@pytest.mark.parametrize("captures", [False, True], ids=["eager", "capturing"])
@pytest.mark.parametrize("part", [MarginLoss(classes=2), *JACOBIANS.values()], ids=str)
def test_dropout_masks_are_the_same(part: Any, captures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (x, y) = network(nn.ReLU, nn.Dropout(0.5)).train(), batch()
    exact = evaluated(both(part)[0], model, x, y)
    state = torch.get_rng_state()
    monkeypatch.setattr(repeated_rng, "is_capturing", lambda _: captures)
    second = evaluated(both(part)[1], model, x, y)
    assert gap(second[1], exact[1]) < 1e-8
    assert torch.equal(torch.get_rng_state(), state)
    assert gap(evaluated(both(part)[1], model, x, y, seed=4)[1], exact[1]) > 1e-3


def test_bfloat16_autocast() -> None:
    data = wm.data.load("digits")
    x, y = (data.train.x[:256] - data.train.x.mean()) / data.train.x.std(), data.train.y[:256]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
    model.append(nn.Linear(128, 10))
    for part in (MarginLoss(), MarginLoss(at=("2",), stabilize=None), JACOBIANS["Jacobian, random"], *FROBENIUS):
        exact, second = both(part)
        values, gradient = evaluated(exact, model, x, y)
        with torch.autocast("cpu", torch.bfloat16):
            torch.manual_seed(3)
            coarse = second(model, x, y)
        options: Any = {"allow_unused": True, "materialize_grads": True}
        gradients = torch.autograd.grad(coarse.mean(), list(model.parameters()), **options)
        assert gap(coarse.detach(), values) < 0.1
        assert coarse.mean().item() / values.mean().item() == pytest.approx(1.0, abs=0.03)
        assert gap(torch.cat([g.flatten() for g in gradients]), gradient) < 0.3


FROBENIUS = JACOBIANS["Frobenius"], JacobianFrobenius(projections=None, at="2")


def test_the_length_of_a_step() -> None:
    """A part of the spread, of the same change in the scores at every p; in float64 small enough for derivatives."""
    x = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    model = nn.Linear(16, 3)
    for dtype, part in ((torch.float32, 1 / 4), (torch.bfloat16, 1 / 4), (torch.float64, 2.0 ** (-52 / 3))):
        for p, factor in ((2.0, 1.0), (math.inf, 1 / 4), (1.0, 4.0)):
            scores, at = TwoPasses(model.to(dtype)).first(3 * x.to(dtype), ("input",))
            h = second_point.lengths_of(at, scores, p)["input"].item()
            assert h == pytest.approx(3 * part * factor, rel=0.05)
    _, at = TwoPasses(model).first(torch.ones(4, 16, dtype=torch.float64), ("input",))
    assert second_point.lengths_of(at, scores[:4], 2.0)["input"].item() > 0


def test_the_loss_does_not_depend_on_the_units_of_the_data() -> None:
    model, (x, y) = network(nn.Tanh).float(), batch(dtype=torch.float32)
    loss = MarginLoss(second_order="second-point", penalty=Hinge(gamma=2.0), stabilize=None, epsilon=0.0)
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        scaled.get_parameter("0.weight").div_(8)
    values = MarginLoss(**{**vars(loss), "penalty": Hinge(gamma=16.0)})(scaled, 8 * x, y)
    torch.testing.assert_close(values, 8 * loss(model, x, y), rtol=1e-4, atol=1e-4)
    frobenius = JacobianFrobenius(second_order="second-point", projections=None)
    heavy = JacobianFrobenius(weight=64 * 0.03, second_order="second-point", projections=None)
    torch.testing.assert_close(heavy(scaled, 8 * x, y), frobenius(model, x, y), rtol=1e-3, atol=0)


class Peak(nn.Module):
    """Two scores whose difference has a ridge at 0, so that a step down the slope may go up again."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(1, 2, bias=False)
        self.out.weight.data = torch.tensor([[1.0], [0.0]])

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x + 3 * F.relu(-3 * x) + 1)
        return scores


def test_slopes_that_turn_within_the_step_are_bounded() -> None:
    x = torch.tensor([[0.02], [4.0], [-1.0]])
    y = torch.zeros(3, dtype=torch.long)
    scores, at = TwoPasses(Peak()).first(x, ("input",))
    lengths = second_point.lengths_of(at, scores)
    outputs = differences(scores, y)
    signed = second_point.slopes(at, outputs, lambda f: f[:, :1] - f[:, 1:], lengths=lengths)["input"]
    assert signed[0] < 0 < signed[1]
    assert (JacobianFrobenius(second_order="second-point", weight=1.0)(Peak(), x, y) > 0).all()
    jacobian = Jacobian(second_order="second-point", weight=1.0)(Peak(), x, y, classes=y)
    torch.testing.assert_close(jacobian[:, None], signed.detach().abs(), check_stride=False)
    loss = MarginLoss(second_order="second-point", stabilize=None, penalty=Hinge(gamma=100.0))
    values = loss(Peak(), x, y)
    assert values[0].item() == pytest.approx(100 - 1.02 / 0.1, rel=1e-4)  # a tenth of the slope 1


class Attention(nn.Module):
    """Fused attention, which has no second derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part[:, None] for part in self.qkv(x.view(-1, 5, 8)).chunk(3, dim=-1))
        scores: Tensor = self.out(F.scaled_dot_product_attention(q, k, v)[:, 0].mean(dim=1))
        return scores


@pytest.mark.parametrize("part", [MarginLoss(), *(JACOBIANS[n] for n in ("Jacobian, sum", "Frobenius"))], ids=str)
def test_fused_attention(part: Any) -> None:
    torch.manual_seed(0)
    model, x, y = Attention().double(), torch.randn(6, 40).double(), torch.arange(6) % 4
    exact, second = both(part)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with pytest.raises(RuntimeError):
            evaluated(exact, model, x, y)
        fused = evaluated(second, model, x, y)
    with sdpa_kernel(SDPBackend.MATH):
        expected = evaluated(exact, model, x, y)
    assert gap(fused[0], expected[0]) < 1e-4
    assert gap(fused[1], expected[1]) < 1e-4


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.lstm(x)[0][:, -1])
        return scores


@pytest.mark.parametrize("part", [MarginLoss(), *(JACOBIANS[n] for n in ("Jacobian, sum", "Frobenius"))], ids=str)
def test_recurrent_networks(part: Any) -> None:
    torch.manual_seed(0)
    same(part, Lstm().double(), torch.randn(6, 5, 3).double(), torch.arange(6) % 4, tolerance=1e-4)


@pytest.mark.parametrize("entry", [*zoo.ZOO, *zoo.TOKENS, *zoo.LOGITS], ids=str)
def test_the_zoo(entry: zoo.Entry) -> None:
    model, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels(5)
    y = y.double() if entry.classes == 1 else y
    place = entry.place if entry.vocabulary else "input"
    same(MarginLoss(at=(place,)), model, x, y, tolerance=1e-3)
    same(JacobianFrobenius(at=place), model, x, y, tolerance=1e-3)


@dynamo
def test_compiled_networks() -> None:
    torch.compiler.reset()
    model, (x, y), backend = network(), batch(), Backend()
    compiled: Any = torch.compile(model, backend=backend)
    exact, second = both(MarginLoss())
    with pytest.raises(RuntimeError, match="second_order=True"):
        MarginLoss(second_order=True)(compiled, x, y)
    runs = backend.runs
    result = evaluated(second, compiled, x, y)
    assert backend.runs > runs  # not uncompiled
    assert gap(result[1], evaluated(exact, model, x, y)[1]) < 1e-8
    for part in JACOBIANS.values():
        again = evaluated(both(part)[1], compiled, x, y)
        assert gap(again[1], evaluated(both(part)[0], model, x, y)[1]) < 1e-8


def test_scores_of_a_pass_of_ones_own() -> None:
    """Shared by a loss and a regularizer: `TwoPasses`, since an ordinary pass can't be repeated."""
    model, (x, y) = network(), batch()
    margin, frobenius = both(MarginLoss())[1], both(JACOBIANS["Frobenius, exact"])[1]
    jacobian = both(Jacobian(weight=1.0, form="sum"))[1]
    scores, at = TwoPasses(model).first(x, ("input",))
    torch.testing.assert_close(margin.of(scores, y, at=at), margin(model, x, y))
    torch.testing.assert_close(jacobian.of(scores, y, at=at, classifier=model[-1].weight), jacobian(model, x, y))
    scores, at = TwoPasses(model).first(x, ("1",))
    torch.testing.assert_close(frobenius.of(scores, y, at=at), frobenius(model, x, y))
    with places.watch(model, ("input",)) as plain:
        scores = model(x)
    with pytest.raises(ValueError, match="second_order is 'second-point'"):
        margin.of(scores, y, at=plain)


def test_the_backward_of_the_loss_takes_plain_autograd() -> None:
    model, (x, y) = network(), batch()
    loss = MarginLoss(second_order="second-point")
    done = loss.backward(model, x, y)
    assert done.method == "two"
    assert "second_order='second-point'" in done.reason
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    values, expected = evaluated(loss, network(), x, y)
    torch.testing.assert_close(done.values, values)
    torch.testing.assert_close(gradient, expected)


def test_settings(untyped: None) -> None:
    second: Any = "second-point"
    assert is_capturable(MarginLoss(second_order=second))
    for part in (MarginLoss(), *JACOBIANS.values()):
        exact, by_second_point = both(part)
        assert stacking_of(exact) is not None
        assert stacking_of(by_second_point) is None
    assert (JacobianFrobenius().weight, Jacobian().weight) == (0.03, 0.1)
    for kind in (MarginLoss, JacobianFrobenius):
        with pytest.raises(ValueError, match="second_order is 'third'"):
            kind(second_order="third")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"probes is 2.*second-point"):
        losses.MarginLoss(second_order=second, probes=2, classes="all")
    assert regularizers.Jacobian(weight=1.0).second_order == "exact"
