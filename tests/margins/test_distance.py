from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.func import functional_call

import oracles
import zoo
from margins.measured import P, distance
from widemargin import margins, places
from widemargin.studies.tasks.nearest_boundary import by_linear_programme

EVERY = [*zoo.ZOO, *zoo.TOKENS, *zoo.RECURRENT, *zoo.LOGITS]


def affine(seed: int, inputs: int, classes: int) -> tuple[nn.Linear, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    network = nn.Linear(inputs, classes, dtype=torch.float64)
    with torch.no_grad():
        network.weight.copy_(torch.randn(classes, inputs, generator=generator, dtype=torch.float64))
        network.bias.copy_(torch.randn(classes, generator=generator, dtype=torch.float64))
    x = torch.randn(3, inputs, generator=generator, dtype=torch.float64)
    return network, x, torch.randint(classes, (3,), generator=generator)


def smooth(activation: type[nn.Module] = nn.Tanh, outputs: int = 3) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), activation(), nn.Linear(4, 3), activation(), nn.Linear(3, outputs))
    y = torch.tensor([0, 2, 1, 1]) if outputs > 1 else torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    return network.double(), torch.randn(4, 2, dtype=torch.float64), y


# ------------------------------------------------------------------------ exact where the scores are affine, in any l_p
#
# The nearest point of the boundary aᵀδ = c, in l_p, three ways, none of which is the package's: a linear programme
# (p = 1, ∞); the minimiser from the conditions of Karush, Kuhn and Tucker, with a bound of the dual programme that
# proves it optimal; and a general solver.


def nearest(a: NDArray[np.float64], c: float, p: float) -> NDArray[np.float64]:
    """The δ of smallest l_p norm with aᵀδ = c: δ_j ∝ sign(a_j)|a_j|^(q−1); p = 1 moves along one axis, p = ∞ all."""
    if p == 1:
        step = np.where(np.abs(a) == np.abs(a).max(), np.sign(a), 0.0)
    elif p == math.inf:
        step = np.sign(a)
    else:
        step = np.sign(a) * np.abs(a) ** (1 / (p - 1))
    return np.asarray(step * (c / (a @ step)))


def proven_distance(a: NDArray[np.float64], c: float, p: float) -> float:
    """‖δ‖_p of the nearest point, proven: it is feasible, and no feasible point is nearer.

    For any λ with ‖λa‖_q ≤ 1, weak duality gives ‖δ'‖_p ≥ λaᵀδ' = λc for every feasible δ'. At λ = ±1/‖a‖_q both meet.
    """
    delta = nearest(a, c, p)
    assert a @ delta == pytest.approx(c, rel=1e-11, abs=1e-12)
    upper = oracles.lp_of(delta.tolist(), p)
    multiplier = math.copysign(1, c) / oracles.lp_of(a.tolist(), oracles.dual(p))
    assert upper == pytest.approx(multiplier * c, rel=1e-11, abs=1e-12)
    return upper


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("seed", range(4))
def test_exact_for_affine_scores(p: float, seed: int) -> None:
    network, x, y = affine(seed, inputs=3 + seed, classes=2 + seed)
    result = distance(network, x, y, p=p, classes="all", aggregate="none")["input"]
    weight, bias = network.weight.detach().numpy(), network.bias.detach().numpy()
    for sample, label, row in zip(x.numpy(), y.tolist(), result.tolist()):
        f = weight @ sample + bias
        for i, value in zip(oracles.rival_classes(f.tolist(), label), row, strict=True):
            a, difference = weight[label] - weight[i], f[label] - f[i]
            expected = math.copysign(proven_distance(a, -difference, p), difference)
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)
            if p in (1, math.inf):
                assert abs(value) == pytest.approx(by_linear_programme(a, -difference, p), rel=1e-9)


@pytest.mark.parametrize("p", [1.25, 2.0, 3.0, 10.0])
def test_a_general_solver_agrees(p: float) -> None:
    network, x, y = affine(7, inputs=3, classes=2)
    value = distance(network, x, y, p=p)["input"][0].item()
    a = (network.weight[y[0]] - network.weight[1 - y[0]]).detach().numpy()
    difference = margins.output(network(x), y)[0].item()
    solved = minimize(
        lambda d: np.sum(np.abs(d) ** p),
        a,
        constraints={"type": "eq", "fun": lambda d: a @ d + difference},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert solved.success
    assert abs(value) == pytest.approx(solved.fun ** (1 / p), rel=1e-4)


@pytest.mark.parametrize("p", P)
def test_the_step_of_that_length_reaches_the_boundary(p: float) -> None:
    """Moving by the smallest distance, and not by less, changes the class, for all classes at once."""
    network, x, _ = affine(3, inputs=4, classes=5)
    y = network(x).argmax(dim=1)
    result = distance(network, x, y, p=p, classes="all")["input"]
    for sample, label, value in zip(x, y.tolist(), result.tolist()):
        f = network(sample).tolist()
        steps = {
            i: nearest((network.weight[label] - network.weight[i]).detach().numpy(), f[i] - f[label], p)
            for i in range(5)
            if i != label
        }
        sizes = {i: oracles.lp_of(step.tolist(), p) for i, step in steps.items()}
        first = min(sizes, key=lambda i: sizes[i])
        assert value == pytest.approx(sizes[first], rel=1e-9)
        step = torch.from_numpy(steps[first])
        assert network(sample + 0.999 * step).argmax() == label
        assert network(sample + 1.001 * step).argmax() == first


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("column", [False, True])
def test_exact_for_affine_binary_scores(p: float, column: bool) -> None:
    network = nn.Sequential(nn.Linear(4, 1), *([] if column else [nn.Flatten(0)])).double()
    weight = next(network.parameters()).detach()[0].numpy()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    f = network(x).detach().flatten()
    result = distance(network, x, y, p=p)["input"]
    assert result.shape == (5,)
    for value, score, label in zip(result.tolist(), f.tolist(), y.tolist()):
        assert value == pytest.approx(label * math.copysign(proven_distance(weight, -score, p), score), rel=1e-9)


# ----------------------------------------------------------------------------------------------- against the definition


@pytest.mark.parametrize("entry", EVERY, ids=str)
@pytest.mark.parametrize("p", [1.0, 1.25, 2.0, math.inf])
def test_the_definition_sample_by_sample_and_class_by_class(entry: zoo.Entry, p: float) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64), entry.labels(3)
    at = (entry.place,) if entry.vocabulary else ("input", entry.place)
    for reading in ("logits", "softmax"):
        result = distance(network, x, y, at, p=p, classes="all", aggregate="none", read_as=reading)
        assert tuple(result) == at
        for place in at:
            expected = oracles.distances(network, x, y, place=place, p=p, read_as=reading)
            torch.testing.assert_close(result[place].tolist(), expected, rtol=1e-8, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("entry", EVERY, ids=str)
def test_a_batch_is_its_samples_one_by_one(entry: zoo.Entry) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels()
    at = (entry.place,) if entry.vocabulary else ("input", entry.place)
    together = distance(network, x, y, at, p=3.0)
    alone = [distance(network, x[k : k + 1], y[k : k + 1], at, p=3.0) for k in range(len(x))]
    for place in at:
        one_by_one = torch.cat([result[place] for result in alone])
        assert one_by_one.isfinite().any()
        torch.testing.assert_close(together[place], one_by_one, rtol=1e-9, atol=1e-11, equal_nan=True)


@pytest.mark.parametrize("p", P)
def test_some_of_the_classes(p: float) -> None:
    """The `classes` strongest by score, and of their distances the smallest, the mean, or all."""
    entry = zoo.ZOO[3]
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels()
    rows = torch.tensor(oracles.distances(network, x, y, place="pool1", p=p), dtype=torch.float64)
    for count in (1, 2, 3):
        for aggregate, expected in (
            ("none", rows[:, :count]),
            ("min", rows[:, :count].amin(dim=1)),
            ("mean", rows[:, :count].mean(dim=1)),
        ):
            result = distance(network, x, y, ("pool1",), p=p, classes=count, aggregate=aggregate)["pool1"]
            torch.testing.assert_close(result, expected, rtol=1e-9, atol=0)


def test_linearize_gives_the_two_halves() -> None:
    network, x, y = smooth()
    with places.watch(network, ("input", "1")) as at:
        scores = network(x)
    lines = margins.linearize(scores, y, at=at, p=1.5, classes=2)
    whole = margins.distance(scores, y, at=at, p=1.5, classes=2, aggregate="none")
    for place, slope in lines.slopes.items():
        torch.testing.assert_close(lines.difference / slope, whole[place], rtol=0, atol=0)
        assert not slope.requires_grad
    assert lines.difference.requires_grad


# ----------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("activation", "p", "reading"),
    [
        *((nn.Tanh, p, "logits") for p in (1.0, 1.25, 2.0, 3.0, math.inf)),
        (nn.Softplus, 2.0, "logits"),
        (nn.Softplus, 1.25, "softmax"),
    ],
)
def test_second_order_is_exact(activation: type[nn.Module], p: float, reading: str) -> None:
    """∂d/∂weights and ∂d/∂x, denominators included, at two places, against finite differences."""
    network, x, y = smooth(activation)
    names = [name for name, _ in network.named_parameters()]

    def distances(x: Tensor, *values: Tensor) -> Tensor:
        with places.watch(network, ("input", "2")) as at:
            scores = functional_call(network, dict(zip(names, values)), (x,))
        result = margins.distance(scores, y, at=at, p=p, classes=2, read_as=reading, second_order=True)  # type: ignore[arg-type]
        return torch.stack(list(result.values()))

    values = [parameter.detach().clone().requires_grad_() for parameter in network.parameters()]
    assert torch.autograd.gradcheck(distances, (x.clone().requires_grad_(), *values), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("outputs", [3, 1])
@pytest.mark.parametrize("aggregate", ["min", "mean", "none"])
def test_the_detached_one_is_the_derivative_with_the_denominator_frozen(outputs: int, aggregate: Any) -> None:
    network, x, y = smooth(outputs=outputs)
    classes: Any = "all"
    weight = next(network.parameters())
    result = distance(network, x, y, ("1",), classes=classes, aggregate=aggregate)["1"]
    (detached,) = torch.autograd.grad(result.sum(), weight)

    with places.watch(network, ("1",)) as at:
        scores = network(x)
    lines = margins.linearize(scores, y, at=at, classes=classes, second_order=True)
    constant = {"min": lambda d: d.amin(dim=1), "mean": lambda d: d.mean(dim=1), "none": lambda d: d}[aggregate](
        lines.difference / lines.slopes["1"].detach()
    )
    (expected,) = torch.autograd.grad(constant.sum(), weight, retain_graph=True)
    torch.testing.assert_close(detached, expected, rtol=1e-11, atol=1e-12)

    exact = distance(network, x, y, ("1",), classes=classes, aggregate=aggregate, second_order=True)["1"]
    torch.testing.assert_close(exact, result, rtol=1e-12, atol=0)  # the same number,
    (full,) = torch.autograd.grad(exact.sum(), weight)
    assert not full.allclose(detached, rtol=1e-2)  # another derivative


# --------------------------------------------------------------------------------------------- binary, softmax, zeros


@pytest.mark.parametrize("column", [False, True])
def test_a_binary_network_is_f_times_y(column: bool) -> None:
    network, x, y = smooth(outputs=1)
    if not column:
        network.append(nn.Flatten(0))
    f = network(x).detach().flatten()
    for place in ("input", "1"):
        result = distance(network, x, y, (place,))[place]
        expected = [row[0] for row in oracles.distances(network, x, y, place=place, p=2)]
        torch.testing.assert_close(result.tolist(), expected, rtol=1e-12, atol=0)
        assert torch.equal(result.sign(), f.sign() * y)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("column", [False, True])
def test_class_indices_with_one_score_are_an_error(column: bool) -> None:
    network, x, _ = smooth(outputs=1)
    if not column:
        network.append(nn.Flatten(0))
    with pytest.raises(TypeError, match=r"y has dtype torch\.int64"):
        distance(network, x, torch.tensor([0, 1, 1, 0]))


@given(st.floats(-12, 12), st.floats(0.1, 10), st.sampled_from([0, 1]), st.sampled_from(P))
@settings(max_examples=60)
def test_read_as_softmax_for_two_classes(z: float, slope: float, label: int, p: float) -> None:
    """Errata 1: with the logit difference z, sinh(z)/‖∇z‖ on probabilities, z/‖∇z‖ on logits."""
    network = nn.Linear(2, 2, dtype=torch.float64)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.0, 0.0], [slope, -slope / 2]], dtype=torch.float64))
        network.bias.copy_(torch.tensor([0.0, z], dtype=torch.float64))
    x, y = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([label])
    sign = 1 if label == 1 else -1
    gradient = oracles.lp_of([slope, slope / 2], oracles.dual(p))
    assert distance(network, x, y, p=p)["input"].item() == pytest.approx(sign * z / gradient, rel=1e-9)
    softmax = distance(network, x, y, p=p, read_as="softmax")["input"].item()
    assert softmax == pytest.approx(sign * math.sinh(z) / gradient, rel=1e-6, abs=1e-12)


@given(st.floats(-12, 12), st.floats(0.1, 10), st.sampled_from([-1.0, 1.0]))
@settings(max_examples=40)
def test_read_as_softmax_for_a_binary_network(f: float, slope: float, label: float) -> None:
    network = nn.Linear(1, 1, dtype=torch.float64)
    with torch.no_grad():
        network.weight.fill_(slope)
        network.bias.fill_(f)
    x, y = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([label], dtype=torch.float64)
    value = distance(network, x, y, read_as="softmax")["input"].item()
    assert value == pytest.approx(label * math.sinh(f) / slope, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("second_order", [False, True])
def test_where_the_gradient_is_zero_there_is_no_distance(p: float, second_order: bool) -> None:
    """A network whose ReLU is dead for negative inputs: NaN there, on purpose, and `valid` says so."""
    network = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 2)).double()
    first, last, bias = network.parameters()
    with torch.no_grad():
        first.fill_(1.0)
        last.copy_(torch.tensor([[1.0, 2.0], [0.5, -1.0]]))
        bias.copy_(torch.tensor([3.0, 1.0]))
    x = torch.tensor([[1.0], [-1.0], [2.0], [-3.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1])
    for aggregate in ("min", "mean"):
        result = distance(network, x, y, p=p, second_order=second_order, aggregate=aggregate)["input"]
        assert margins.valid(result).tolist() == [True, False, True, False]
        assert result.isnan().tolist() == [False, True, False, True]
    spread = margins.Distribution.of(result)
    assert (len(spread), spread.invalid) == (2, 2)
    assert spread.mean == pytest.approx(result[[0, 2]].mean().item())


def test_where_the_gradient_overflows_there_is_no_distance() -> None:
    """Not 0, which a division by infinity would give."""
    network = nn.Linear(2, 2, dtype=torch.float64)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1e308, 1e308], [-1e308, 0.0]], dtype=torch.float64))
    result = distance(network, torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]), p=math.inf)["input"]
    assert not margins.valid(result).any()


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("how", "error", "sentence"),
    [
        ({"p": 0.5}, ValueError, r"^p is 0\.5"),
        ({"aggregate": "max"}, ValueError, r"^aggregate is 'max'"),
        ({"read_as": "odds"}, ValueError, r"^read_as is 'odds'"),
        ({"classes": 3}, ValueError, r"^classes is 3"),
        ({"at": ("input",)}, TypeError, r"^at is a tuple"),
    ],
)
def test_a_bad_argument(how: dict[str, Any], error: type[Exception], sentence: str) -> None:
    network, x, y = smooth()
    with places.watch(network, ("input",)) as at:
        scores = network(x)
    arguments = {"at": at, **how}
    with pytest.raises(error, match=sentence):
        margins.distance(scores, y, **arguments)


# ----------------------------------------------------------------------------------------------- dtypes and conditions


def test_under_autocast() -> None:
    """bf16 has 8 bits: close to float32, and the result is float32."""
    entry = zoo.ZOO[3]
    network, x, y = entry.network(), entry.inputs(), entry.labels()
    expected = distance(network, x, y, ("input", "pool1"), classes="all")
    with torch.autocast("cpu", torch.bfloat16):
        result = distance(network, x, y, ("input", "pool1"), classes="all")
    for place, values in result.items():
        assert values.dtype == torch.float32
        torch.testing.assert_close(values, expected[place], rtol=0.05, atol=0.02)


def test_channels_last() -> None:
    entry = zoo.ZOO[5]
    network, x, y = entry.network(), entry.inputs(), entry.labels()
    expected = distance(network, x, y, ("input", entry.place))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    result = distance(network, x.to(memory_format=torch.channels_last), y, ("input", entry.place))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_network_of_any_precision(dtype: torch.dtype) -> None:
    network, x, y = smooth()
    expected = distance(network, x, y)["input"]
    result = distance(network.to(dtype), x.to(dtype), y)["input"]
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.2}[dtype]
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)


def test_the_weights_get_no_gradient_from_measuring() -> None:
    network, x, y = smooth()
    distance(network, x, y, ("input", "1"))
    assert all(parameter.grad is None for parameter in network.parameters())
