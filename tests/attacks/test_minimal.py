"""The nearest misclassified input: exact where the network is linear, always verified, never 0 for a failure."""

from __future__ import annotations

import importlib
import math
import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bad_values import Changed
from widemargin import norms
from widemargin.attacks import minimal
from widemargin.attacks.minimal import Search


def linear(classes: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, classes)).double()


def mlp() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)  # torch's own start gives one answer for all inputs
    return model


def answers(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).argmax(dim=1)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_a_linear_network_is_exact(p: float) -> None:
    torch.manual_seed(0)
    model, x = linear(), torch.randn(30, 2, 3).double()
    y = answers(model, x)
    scores, weight = model(x).detach(), model.get_parameter("1.weight").detach()
    slopes = norms.lp((weight[:, None] - weight).flatten(0, 1), norms.dual(p)).view(4, 4)[y]
    true = ((scores.gather(1, y[:, None]) - scores) / slopes).scatter(1, y[:, None], math.inf).amin(dim=1)
    found = minimal(model, x, y, p=p, search="own")
    assert found.found.all()
    assert (found.distances >= true).all()
    assert torch.allclose(found.distances, true, rtol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_every_point_is_misclassified_and_inside_its_bounds(p: float, bounds: tuple[float, float] | None) -> None:
    torch.manual_seed(1)
    model, x = mlp(), torch.rand(40, 6)
    y = answers(model, x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = minimal(model, x, y, p=p, bounds=bounds, search="own")
    assert found.found.any()
    for i in range(40):  # one by one, as another user of the points would
        assert (int(answers(model, found.points[i : i + 1])) != int(y[i])) == bool(found.found[i])
    assert torch.allclose(norms.lp(found.points.double() - x, p)[found.found], found.distances[found.found])
    assert found.distances[~found.found].isinf().all()
    if bounds is not None:
        assert float(found.points.min()) >= 0
        assert float(found.points.max()) <= 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_it_beats_a_walk_along_the_gradient() -> None:
    torch.manual_seed(2)
    model, x = mlp(), torch.randn(60, 6)
    y = answers(model, x)
    found = minimal(model, x, y)
    once = minimal(model, x, y, steps=1, targets=1)
    both = found.found & once.found
    assert (found.distances[both] <= once.distances[both] * 1.001).double().mean() > 0.95
    assert found.distances[both].mean() < once.distances[both].mean()


def test_misclassified_samples_are_at_0_and_failures_are_no_bound() -> None:
    torch.manual_seed(3)
    model, x = mlp(), torch.randn(5, 6)
    wrong = (answers(model, x) + 1) % 4
    found = minimal(model, x, wrong)
    assert found.found.all()
    assert torch.equal(found.distances, torch.zeros(5).double())
    assert torch.equal(found.points, x)
    constant = nn.Linear(6, 3)
    nn.init.zeros_(constant.weight)
    constant.bias.data = torch.tensor([1.0, 0.0, 0.0])
    found = minimal(constant, x, torch.zeros(5).long())
    assert not found.found.any()
    assert found.distances.isinf().all()
    assert torch.equal(found.points, x)


def test_binary_networks_and_singles() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    x = torch.randn(8, 6).double()
    y = model(x).detach().sign().flatten()
    found = minimal(model, x, y)
    assert (model(found.points).flatten() * y < 0)[found.found].all()
    each = torch.cat([minimal(model, x[i : i + 1], y[i : i + 1]).distances for i in range(8)])
    assert torch.allclose(found.distances, each, rtol=1e-6)


def test_dropout_sleeps_and_wakes() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.9), nn.Linear(16, 3)).train()
    x = torch.randn(4, 6)
    y = answers(model.eval(), x)
    model.train()
    assert torch.equal(minimal(model, x, y).distances, minimal(model, x, y).distances)
    assert model.training
    assert model[1].training


def test_foolbox_is_asked_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    model, x = linear(), torch.randn(6, 2, 3).double()
    y = answers(model, x)
    seen: list[Any] = []

    class L2FMNAttack:
        def __call__(self, network: Any, inputs: Tensor, labels: Tensor, *, epsilons: None) -> tuple[Any, ...]:
            seen.append(network)
            return None, inputs + 100.0, None

    fake = types.ModuleType("foolbox")
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    fake.attacks = types.SimpleNamespace(L2FMNAttack=L2FMNAttack)  # type: ignore[attr-defined]
    fake.PyTorchModel = lambda network, bounds, device: (network, bounds)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foolbox", fake)
    best, own = minimal(model, x, y), minimal(model, x, y, search="own")
    assert len(seen) == 1
    assert seen[0][1] == (2 * float(x.min()) - float(x.max()), 2 * float(x.max()) - float(x.min()))
    assert torch.allclose(best.distances, own.distances)
    alone = minimal(model, x, y, search="foolbox")
    assert (alone.distances >= own.distances - 1e-9).all()


def test_bad_arguments_are_told() -> None:
    model, x, y = mlp(), torch.randn(2, 6), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="x has nan at index 0"):
        minimal(model, x * math.nan, y)
    with pytest.raises(ValueError, match="targets is 0"):
        minimal(model, x, y, targets=0)
    with pytest.raises((TypeError, ValueError), match="search"):
        minimal(model, x, y, search="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"p is 3\.0"):
        minimal(model, x, y, p=3.0, search="foolbox")
    with pytest.raises(ValueError, match="bounds="):
        minimal(model, x, y, bounds=(0.0, 1e-9))


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module", name="foolbox"), ImportError("no git executable")])
def test_without_foolbox_the_best_search_is_our_own(error: ImportError, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = mlp(), torch.randn(4, 6)
    y = answers(model, x)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    assert torch.equal(minimal(model, x, y).distances, minimal(model, x, y, search="own").distances)
    with pytest.raises(ImportError):
        minimal(model, x, y, search="foolbox")


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_foolbox_itself_finds_nothing_much_nearer(p: float) -> None:
    pytest.importorskip("foolbox", exc_type=ImportError)
    torch.manual_seed(0)
    model, x = mlp(), torch.rand(20, 6)
    y = answers(model, x)
    ours, theirs, best = (minimal(model, x, y, p=p, search=search) for search in ("own", "foolbox", "best"))
    assert theirs.found.float().mean() > 0.5  # where its range ends there may be nothing to find
    both = ours.found & theirs.found
    assert float((ours.distances[both] / theirs.distances[both]).median()) < 1.02
    assert bool((answers(model, theirs.points[theirs.found]) != y[theirs.found]).all())
    assert bool((best.distances <= torch.minimum(ours.distances, theirs.distances) * 1.002).all())


@pytest.mark.parametrize("search", ["own", "foolbox", "best"])
def test_weights_keep_their_gradients(search: Search) -> None:
    """Foolbox's attack runs a backward pass."""
    if search == "foolbox":
        pytest.importorskip("foolbox", exc_type=ImportError)
    torch.manual_seed(0)
    model, x = mlp(), torch.rand(5, 6)
    frozen, *trained = model.parameters()
    frozen.requires_grad_(False)
    model(x).sum().backward()
    before = [torch.zeros(()) if parameter.grad is None else parameter.grad.clone() for parameter in trained]
    minimal(model, x, answers(model, x), search=search, steps=4)
    for parameter, old in zip(trained, before, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, old)
    assert frozen.grad is None
    assert [parameter.requires_grad for parameter in model.parameters()] == [False] + [True] * 5


def test_foolbox_reads_the_scores_of_any_network() -> None:
    pytest.importorskip("foolbox", exc_type=ImportError)
    torch.manual_seed(0)
    model, x = mlp(), torch.rand(5, 6)
    y = answers(model, x)
    expected = minimal(model, x, y, search="foolbox", steps=4).distances
    for change in (lambda s: (s, s.sum()), lambda s: {"logits": s}, lambda s: types.SimpleNamespace(logits=s)):
        found = minimal(Changed(model, change), x, y, search="foolbox", steps=4)
        assert torch.equal(found.distances, expected)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_the_best_search_is_never_farther_than_our_own(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the other start is nearer, but a worse one to go on from."""
    torch.manual_seed(4)
    model, x = mlp(), torch.randn(40, 6)
    y = answers(model, x)
    own = minimal(model, x, y, p=p, search="own", steps=5)
    near = torch.where(own.found[:, None], own.points + 1e-3 * torch.randn_like(x), x)  # a little nearer or farther
    search = importlib.import_module("widemargin.attacks.minimal")
    monkeypatch.setattr(search, "_foolbox", lambda *_: types.ModuleType("foolbox"))
    monkeypatch.setattr(search, "_fast_minimum_norm", lambda *_: near)
    best = minimal(model, x, y, p=p, search="best", steps=5)
    assert bool((best.distances <= own.distances).all())
    assert bool((best.distances < own.distances).any())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_points_of_half_precision_are_misclassified_in_half_precision(dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(5)
    model, x = mlp().to(dtype), torch.rand(20, 6).to(dtype)
    y = answers(model, x)
    found = minimal(model, x, y, p=p, search="own", bounds=(0.0, 1.0), steps=10)
    assert found.points.dtype == dtype
    assert bool((answers(model, found.points) != y)[found.found].all())
    assert torch.equal(found.distances[found.found], norms.lp((found.points.double() - x.double()), p)[found.found])
    exact = minimal(model.float(), x.float(), y, p=p, search="own", bounds=(0.0, 1.0), steps=10)
    assert int(found.found.sum()) >= int(exact.found.sum()) - 1
    both = found.found & exact.found & (exact.distances > 0.05)
    assert float((found.distances / exact.distances)[both].median()) == pytest.approx(1.0, abs=0.1)
