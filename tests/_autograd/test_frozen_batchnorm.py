from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

import oracles
from widemargin import margins, places
from widemargin._autograd.frozen_batchnorm import Route

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum None": {"momentum": None},
    "affine=False": {"affine": False},
    "track_running_stats=False": {"track_running_stats": False},
    "bare": {"affine": False, "track_running_stats": False},
    "large eps": {"eps": 0.5},
}


def flat(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Two BatchNorm1d layers on vectors, one before an in-place ReLU."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(4, 6),
        nn.BatchNorm1d(6, **settings),
        nn.ReLU(inplace=True),
        nn.Linear(6, 5),
        nn.BatchNorm1d(5, **settings),
        nn.Tanh(),
        nn.Linear(5, 3),
    )
    return prepared(network, dtype), torch.randn(7, 4, dtype=dtype) * 2 + 1, torch.tensor([0, 1, 2, 0, 1, 2, 0])


def sequence(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[nn.Sequential, Tensor, Tensor]:
    """BatchNorm1d on sequences."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3, **settings), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4, 3)
    )
    return prepared(network, dtype), torch.randn(6, 2, 6, dtype=dtype) * 2 + 1, torch.tensor([0, 1, 2, 0, 1, 2])


def image(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Two BatchNorm2d layers, one of them right after the input."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.BatchNorm2d(2, **settings),
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3, **settings),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3 * 4 * 4, 3),
    )
    return prepared(network, dtype), torch.randn(6, 2, 4, 4, dtype=dtype) * 2 + 1, torch.tensor([0, 1, 2, 0, 1, 2])


def prepared(network: nn.Sequential, dtype: torch.dtype) -> nn.Sequential:
    """In training mode, with scales and shifts that are not 1 and 0."""
    for module in network:
        if isinstance(module, _BatchNorm) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return network.to(dtype).train()


Build = Callable[..., tuple[nn.Sequential, Tensor, Tensor]]
builds = pytest.mark.parametrize("build", [flat, sequence, image])


def with_constant_statistics(network: nn.Sequential, x: Tensor) -> nn.Sequential:
    """The oracle: the network in evaluation mode, whose running statistics are those of this batch."""
    oracle = copy.deepcopy(network).eval()
    for index, module in enumerate(oracle):
        if isinstance(module, _BatchNorm):
            dims = [0, *range(2, x.ndim)]
            constant = type(module)(module.num_features, eps=module.eps, affine=module.affine, dtype=x.dtype)
            if module.affine:
                constant.load_state_dict(module.state_dict(), strict=False)
            assert constant.running_mean is not None
            assert constant.running_var is not None
            constant.running_mean.copy_(x.mean(dims))
            constant.running_var.copy_(x.var(dims, correction=0))
            oracle[index] = constant.eval()
        x = oracle[index](x.clone()).detach()
    return oracle


def watched(
    network: nn.Module, x: Tensor, y: Tensor, at: tuple[str, ...], statistics: places.BatchStatistics, **how: Any
) -> dict[str, Tensor]:
    with places.watch(network, at, statistics=statistics) as zeros:
        scores = network(x)
    return margins.distance(scores, y, at=zeros, **how)


# ------------------------------------------------------------------------------------------- what a user can and cannot


@builds
@pytest.mark.parametrize("name", VARIANTS)
def test_frozen_is_the_network_with_constant_statistics(build: Build, name: str) -> None:
    network, x, y = build(**VARIANTS[name])
    at = ("input", *(str(index) for index in range(len(network))))
    distances = watched(network, x, y, at, "frozen")
    oracle = with_constant_statistics(network, x)
    for place in at:
        expected = [row[0] for row in oracles.distances(oracle, x, y, place=place, p=2)]
        torch.testing.assert_close(distances[place].tolist(), expected, rtol=1e-10, atol=1e-12, equal_nan=True)


@builds
def test_frozen_per_sample_gradients_are_each_samples_own(build: Build) -> None:
    """The gradients themselves, not only their norms, sample by sample, through the oracle alone."""
    network, x, _ = build()
    with places.watch(network, ("input",), statistics="frozen") as at:
        scores = network(x)
    gradients = at.gradients(scores[:, 1])["input"]
    oracle = with_constant_statistics(network, x)
    for sample, gradient in zip(x, gradients):
        _, jacobian = oracles.gradients_of_sample(oracle, sample, "input", "logits")
        torch.testing.assert_close(gradient.flatten(), torch.from_numpy(jacobian[1]), rtol=1e-10, atol=1e-12)


@builds
def test_coupled_gradients_are_wrong_per_sample(build: Build) -> None:
    """More than 10 % off for the median sample: the reason why a choice must be made."""
    network, x, _ = build()
    gradients: dict[str, Tensor] = {}
    for statistics in ("coupled", "frozen"):
        with places.watch(network, ("input",), statistics=statistics) as at:
            scores = network(x)
        gradients[statistics] = at.gradients(scores[:, 0])["input"].flatten(1)
    error = (gradients["coupled"] - gradients["frozen"]).norm(dim=1) / gradients["frozen"].norm(dim=1)
    assert error.median() > 0.1


@builds
def test_coupled_is_what_autograd_gives(build: Build) -> None:
    """As the papers' codes do: the gradient of the sum over the batch, through the batch statistics."""
    network, x, y = build()
    coupled = watched(network, x, y, ("input",), "coupled")["input"]
    leaf = x.clone().requires_grad_()
    scores = network(leaf)
    difference = margins.output(scores, y)
    (gradient,) = torch.autograd.grad(difference.sum(), leaf)
    torch.testing.assert_close(coupled, difference / gradient.flatten(1).norm(dim=1), rtol=1e-12, atol=0)


@builds
def test_silent_coupling_is_not_possible(build: Build) -> None:
    network, x, _ = build()
    with (
        pytest.raises(ValueError, match=r"^statistics is None.*'\d' \(BatchNorm[12]d\)"),
        places.watch(network, ("input",)),
    ):
        network(x)
    network.eval()
    with places.watch(network, ("input",)) as at:
        network(x)
    assert at["input"].shape == x.shape


def test_a_layer_without_running_statistics_mixes_in_evaluation_mode_too() -> None:
    network, x, y = flat(track_running_stats=False)
    network.eval()
    with pytest.raises(ValueError, match=r"statistics is None.*'1'"), places.watch(network, ("input",)):
        network(x)
    frozen = watched(network, x, y, ("input",), "frozen")["input"].tolist()
    oracle = with_constant_statistics(network, x)
    torch.testing.assert_close(frozen, [row[0] for row in oracles.distances(oracle, x, y, place="input", p=2)])


def test_one_layer_in_training_mode_is_enough() -> None:
    network, x, y = flat()
    network.eval()
    network[4].train()
    with pytest.raises(ValueError, match=r"statistics is None.*'4'"), places.watch(network, ("input",)):
        network(x)
    assert watched(network, x, y, ("input",), "frozen")["input"].isfinite().all()


def test_synchronised_batch_norm_is_refused() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.SyncBatchNorm(3))
    with (
        pytest.raises(TypeError, match=r"statistics is 'frozen'.*SyncBatchNorm"),
        places.watch(network, ("input",), statistics="frozen"),
    ):
        network(torch.zeros(2, 2))


@pytest.mark.usefixtures("untyped")
def test_an_unknown_choice() -> None:
    network, x, _ = flat()
    with (
        pytest.raises(ValueError, match="statistics is 'off'"),
        places.watch(network, ("input",), statistics="off"),  # type: ignore[arg-type]
    ):
        network(x)


# ----------------------------------------------------------------------------------------------------- training with it


@builds
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("statistics", ["coupled", "frozen"])
def test_training_goes_on_as_if_nobody_watched(build: Build, name: str, statistics: places.BatchStatistics) -> None:
    """Same scores, same running statistics, and bit for bit the same weight gradients, also after a measurement."""
    network, x, y = build(**VARIANTS[name])
    plain = copy.deepcopy(network)
    expected = plain(x.clone())
    nn.functional.cross_entropy(expected, y).backward()

    with places.watch(network, ("input", "1"), statistics=statistics) as at:
        scores = network(x)
    margins.distance(scores, y, at=at, classes="all")
    nn.functional.cross_entropy(scores, y).backward()

    assert torch.equal(scores, expected)
    for (key, value), other in zip(network.state_dict().items(), plain.state_dict().values()):
        assert torch.equal(value, other), key
    for (key, parameter), other in zip(network.named_parameters(), plain.parameters()):
        assert parameter.grad is not None
        assert other.grad is not None
        assert torch.equal(parameter.grad, other.grad), key


@builds
def test_weight_gradients_of_a_distance_flow_through_the_statistics(build: Build) -> None:
    """Detached denominators: the weight gradients are those of f_y − f_i in training mode, divided by constants."""
    network, x, y = build()
    distances = watched(network, x, y, ("input",), "frozen")["input"]
    distances.sum().backward()

    plain = copy.deepcopy(network)
    plain.zero_grad()
    difference = margins.output(plain(x), y)
    (difference / (difference / distances).detach()).sum().backward()
    for (key, parameter), other in zip(network.named_parameters(), plain.parameters()):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-9, atol=1e-12, msg=key)


@pytest.mark.parametrize("statistics", ["coupled", "frozen"])
@pytest.mark.parametrize("name", ["plain", "affine=False", "bare"])
def test_second_order_is_exact(name: str, statistics: places.BatchStatistics) -> None:
    """Also through the batch variance in the denominators, which depends on the weights before it."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, **VARIANTS[name]), nn.Softplus(), nn.Linear(3, 2))
    network = prepared(network, torch.float64)
    x, y = torch.randn(4, 2, dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    names = [key for key, _ in network.named_parameters()]

    def distances(*values: Tensor) -> Tensor:
        with places.watch(network, ("input", "0"), statistics=statistics) as at:
            scores = functional_call(network, dict(zip(names, values)), (x,))
        by_place = margins.distance(scores, y, at=at, second_order=True)
        return torch.cat(list(by_place.values()))

    values = [parameter.detach().clone().requires_grad_() for parameter in network.parameters()]
    assert torch.autograd.gradcheck(distances, values, eps=1e-6, atol=1e-5, rtol=1e-4)


def test_under_autocast() -> None:
    network, x, y = image(torch.float32)
    expected = watched(network, x, y, ("input", "2"), "frozen")
    with torch.autocast("cpu", torch.bfloat16):
        distances = watched(network, x, y, ("input", "2"), "frozen")
    for place, values in distances.items():
        assert values.dtype == torch.float32
        torch.testing.assert_close(values, expected[place], rtol=0.1, atol=0.02)


def test_channels_last() -> None:
    network, x, y = image(torch.float64)
    expected = watched(copy.deepcopy(network), x, y, ("input", "1"), "frozen")
    last = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    distances = watched(last, x.to(memory_format=torch.channels_last), y, ("input", "1"), "frozen")
    for place, values in distances.items():
        torch.testing.assert_close(values, expected[place])


def test_nothing_is_left_on_the_network() -> None:
    network, x, y = flat()
    watched(network, x, y, ("input", "2"), "frozen")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_the_route_is_the_true_one_again_after_an_error() -> None:
    route = Route()
    with pytest.raises(RuntimeError, match="inside"), route.frozen():
        raise RuntimeError(f"inside, {route.is_frozen}")
    assert not route.is_frozen
