"""The split backward of a stack: the gradients of two backwards, and in words why not where it is not exact."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from population.one_by_one import BN_CNN, CNN, MLP, difference, networks, samples, train
from widemargin import losses, population, regularizers
from widemargin.data import Samples
from widemargin.population import split
from widemargin.population.run import Plan, Run
from widemargin.population.split_check import tried
from widemargin.split_backward.graph import Use
from widemargin.training import Sgd
from widemargin.training.schedules import Constant

ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
HINGE = losses.MarginLoss(penalty=losses.Hinge(gamma=2.0))
BAND = losses.MarginLoss(penalty=losses.Band(r=2.0, theta=1.0, mu=0.3))


@pytest.fixture(autouse=True)
def however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST", {"cpu": 0, "cuda": 0})


def of(*layers: Callable[[], nn.Module]) -> Callable[[], list[nn.Module]]:
    return lambda: population.build(lambda: nn.Sequential(*[layer() for layer in layers]).double(), range(10, 13))


class Twice(nn.Module):
    """A layer that is used so many times."""

    def __init__(self, times: int = 2, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.times = layer or nn.Linear(6, 6), times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.layer(x))
        return x


class Mixes(nn.Module):
    """Adds the distance from the mean of the batch, behind a gate that starts at zero and hides it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * (x - x.mean(dim=0))


def conv() -> nn.Module:
    return nn.Conv2d(1, 4, 3, padding=1)


def flat(features: int) -> tuple[Callable[[], nn.Module], ...]:
    return nn.Flatten, lambda: nn.Linear(features, 3)


NETWORKS: dict[str, Callable[[], list[nn.Module]]] = {
    "MLP": lambda: networks(MLP),
    "CNN": lambda: networks(CNN),
    "dropout": lambda: networks(CNN, dropout=0.5),
    "group norm": of(conv, lambda: nn.GroupNorm(2, 4), nn.ReLU, *flat(144)),
    "layer norm": of(nn.Flatten, lambda: nn.Linear(36, 8), lambda: nn.LayerNorm(8), nn.Tanh, lambda: nn.Linear(8, 3)),
    "rows as tokens": of(lambda: nn.Flatten(1, 2), lambda: nn.Linear(6, 5), nn.Tanh, *flat(30)),
    "a layer used twice": of(lambda: nn.Flatten(1, 2), Twice, *flat(36)),
    "a convolution used twice": of(conv, lambda: Twice(layer=nn.Conv2d(4, 4, 3, padding=1)), *flat(144)),
    "no biases": of(lambda: nn.Conv2d(1, 4, 3, bias=False), nn.ReLU, nn.Flatten, lambda: nn.Linear(64, 3, bias=False)),
}
LOSSES: dict[str, Any] = {
    "hinge": HINGE,
    "hidden": losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), at=("1", "2")),
    "all": losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), at=("input", "0", "1", "2"), p=torch.inf),
    "softmax, clipped": losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), scores="softmax", clip=2.0),
    "as printed": losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), at=("input", "2"), stabilize=None),
    "band": BAND,
    "odn as printed": losses.odn(stabilize=None),
    "γ": [losses.MarginLoss(penalty=losses.Hinge(gamma=gamma)) for gamma in (1.0, 3.0, 1.0)],
    "kinds": [HINGE, BAND, losses.MarginLoss(penalty=losses.Hinge(gamma=1.0), stabilize=None)],
}


def started(given: list[nn.Module], loss: Any, form: Any = "grouped", **settings: Any) -> Run:
    """A population before its first step."""
    count = len(given)
    data = settings.pop("data", samples()).to(settings.get("device", "cpu"))
    setting: dict[str, Any] = {
        "networks": given,
        "data": [data] * count,
        "losses": loss if isinstance(loss, list) else [loss] * count,
        "optimizers": [Sgd(lr=0.05)] * count,
        "seeds": list(range(count)),
        "regularizers": (),
        "steps": 100,
        "batch_size": 10,
        "schedule": Constant(),
        "until": None,
        "device": torch.device("cpu"),
    }
    return Run(Plan(**{**setting, **settings}), range(count), form)


def gap(run: Run) -> float:
    """The largest difference between the gradients of both ways, and between their losses, relative to the largest."""
    batch, keys = run.table.batch(run.step), run._keys()
    found, losses_found = run.objective.gradients(run.stack, batch, keys, run.streams())
    line = str(run.objective.backward)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "LEAST", {})
        wanted, losses_wanted = run.objective.gradients(run.stack, batch, keys, run.streams())
        where = run.plan.device.type
        assert run.objective.backward == f"two backwards: the split of a population was not tried on {where} yet"
    run.objective.backward = line
    assert found.keys() == wanted.keys() == run.stack.trained().keys()
    gaps = [float((losses_found - losses_wanted).abs().max() / losses_wanted.abs().max())]
    for name, own in found.items():
        other = wanted[name]
        assert own is not None
        assert other is not None
        assert bool(other.any())
        assert own.shape == other.shape
        gaps.append(float((own - other).abs().max() / other.abs().max()))
    return max(gaps)


def is_split(run: Run) -> bool:
    return str(run.objective.backward).startswith("split backward")


@pytest.mark.parametrize("form", ["grouped", "matmul"])
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("loss", ["hinge", "all"])
def test_gradients_are_those_of_two_backwards(kind: str, loss: str, form: str) -> None:
    run = started(NETWORKS[kind](), LOSSES[loss], form)
    assert gap(run) < 1e-10
    assert is_split(run)


@pytest.mark.parametrize("kind", ["MLP", "CNN"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_form_of_the_loss(kind: str, loss: str) -> None:
    run = started(NETWORKS[kind](), LOSSES[loss])
    assert gap(run) < 1e-10
    assert is_split(run)


def test_binary_networks() -> None:
    run = started(networks(MLP, outputs=1), HINGE, data=samples(classes=2))
    assert gap(run) < 1e-10
    assert is_split(run)


def test_a_smaller_batch_and_fewer_networks() -> None:
    """21 samples in batches of 10 and 9: the last one of an epoch is of 1 or of 3."""
    for batch_size, form in ((10, "grouped"), (9, "matmul")):
        run = started(networks(CNN, 4), HINGE, form, batch_size=batch_size)
        for step in range(6):
            assert gap(run) < 1e-10
            assert is_split(run)
            run.advance(lambda *_: None)
            if step == 3:
                run._keep(torch.tensor([0, 3]))


def test_it_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noted(*given: Any) -> Any:
        seen.append(len(given[0]))
        return tried(*given)

    monkeypatch.setattr(split, "tried", noted)
    run = started(networks(CNN), HINGE, batch_size=7)
    for _ in range(5):
        run.advance(lambda *_: None)
    assert seen == [3]


def test_a_trial_leaves_everything_as_it_was() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run = started(networks(CNN, dropout=0.3), HINGE)
    weights = {name: value.detach().clone() for name, value in run.stack.parameters.items()}
    gap(run)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(run.stack.parameters[name], value) for name, value in weights.items())


def test_what_was_kept_is_let_go_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[Tensor]] = []
    plain = Use.parameter_gradients

    def noted(use: Use, kept: list[Tensor], *more: Any) -> Any:
        assert all(before() is None for before in seen)
        seen.extend(weakref.ref(one) for one in kept)
        return plain(use, kept, *more)

    monkeypatch.setattr(Use, "parameter_gradients", noted)
    run = started(networks(MLP), HINGE)  # of a convolution and its bias the same one is kept
    run.advance(lambda *_: None)
    assert is_split(run)
    assert len(seen) == 3


def test_regularizers_are_added() -> None:
    decay, jacobian = regularizers.WeightDecay(weight=0.1), regularizers.Jacobian(weight=0.2, form="sum")
    run = started(networks(CNN), HINGE, regularizers=(jacobian, decay))
    assert gap(run) < 1e-10
    assert is_split(run)


def test_frozen_parameters_have_no_gradient() -> None:
    given = networks(CNN)
    for network in given:
        network.get_parameter("0.weight").requires_grad_(False)
    run = started(given, HINGE)
    assert "0.weight" not in run.stack.trained()
    assert gap(run) < 1e-10
    assert is_split(run)


@pytest.mark.parametrize(
    ("given", "loss", "reason"),
    [
        (lambda: networks(BN_CNN), HINGE, "'1' (BatchNorm2d) mixes the samples of a batch"),
        (
            lambda: networks(MLP),
            losses.MarginLoss(cross_entropy=0.5),
            "the loss has a cross-entropy term, a second direction at the scores",
        ),
        (
            lambda: networks(MLP),
            [HINGE, HINGE, losses.MarginLoss(cross_entropy=0.5)],
            "the loss has a cross-entropy term, a second direction at the scores",
        ),
        (
            lambda: networks(MLP),
            losses.MarginLoss(classes="all"),
            "the loss takes 2 classes, each a direction at the scores",
        ),
        (
            lambda: networks(MLP),
            losses.MarginLoss(second_order=True),
            "the loss has second_order=True, its denominators depend on the weights",
        ),
        (
            of(nn.Flatten, lambda: nn.Linear(36, 8), Mixes, lambda: nn.Linear(8, 3)),
            HINGE,
            "what '1.weight' enters (BaddbmmBackward0) does not treat samples one by one",
        ),
        (of(lambda: nn.Flatten(1, 2), lambda: Twice(3), *flat(36)), HINGE, "'1.layer.bias' is used 3 times"),
        (
            lambda: networks(MLP),
            [HINGE, HINGE, losses.MarginLoss(at=("2",))],
            "the losses are computed network by network",
        ),
        (lambda: networks(MLP)[:1], HINGE, "the losses are computed network by network"),
    ],
)
def test_elsewhere_it_is_two_backwards_and_says_why(given: Any, loss: Any, reason: str) -> None:
    given, data = given(), samples()
    loss = loss if isinstance(loss, list) else [loss] * len(given)
    setting: dict[str, Any] = {"optimizer": Sgd(lr=0.05), "steps": 6, "batch_size": 10}
    done = population.fit(given, data, loss=loss, chunk=len(given), convolutions="grouped", **setting)
    assert done.backward == f"two backwards: {reason}"
    for k, network in enumerate(done.networks):
        alone, _, _ = train(given[k], data, loss=loss[k], seed=k, **setting)
        assert difference(network, alone) < 1e-10


def test_little_ones_take_two_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST", {"cpu": 2**20})
    run = started(networks(MLP), HINGE)
    assert gap(run) == 0.0
    assert str(run.objective.backward).endswith("MB of gradients, so little that the split would take longer")


@pytest.mark.parametrize("loss", ["hinge", "hidden", "kinds"])
@pytest.mark.parametrize("form", ["grouped", "matmul"])
def test_the_weights_of_one_by_one(loss: str, form: Any) -> None:
    given, data = networks(CNN), samples()
    each = LOSSES[loss] if isinstance(LOSSES[loss], list) else [LOSSES[loss]] * 3
    setting: dict[str, Any] = {"optimizer": Sgd(lr=0.02, momentum=0.9), "steps": 20, "batch_size": 8}
    done = population.fit(given, data, loss=each, chunk=3, convolutions=form, **setting)
    assert str(done.backward).startswith("split backward: ")
    for k, network in enumerate(done.networks):
        alone, _, value = train(given[k], data, loss=each[k], seed=k, **setting)
        assert difference(network, alone) < 1e-8
        assert done.losses[k] == pytest.approx(value, rel=1e-8)


@ON_A_GPU
@pytest.mark.parametrize("form", ["grouped", "matmul"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_on_a_gpu(kind: str, form: str) -> None:
    run = started(NETWORKS[kind](), LOSSES["all"], form, device=torch.device("cuda"))
    assert gap(run) < 1e-9
    assert is_split(run)


@ON_A_GPU
@pytest.mark.parametrize("loss", ["hinge", "all"])
@pytest.mark.parametrize(("kind", "convolutions"), [("CNN", 1), ("no biases", 1), ("a convolution used twice", 3)])
def test_fused_convolutions(kind: str, convolutions: int, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, which is what they are for; each finds the gradient of its weights once in a step."""
    from widemargin.population import conv_kernels

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    data = samples()
    given = [network.float() for network in NETWORKS[kind]()]
    setting: dict[str, Any] = {"data": Samples(data.x.float(), data.y), "device": torch.device("cuda")}
    run = started(given, LOSSES[loss], "fused", **setting)
    assert gap(run) < 2e-5
    assert is_split(run)
    seen, correlate = list[int](), conv_kernels.correlate

    def noted(*given: Any) -> Tensor:
        seen.append(1)
        return correlate(*given)

    monkeypatch.setattr(conv_kernels, "correlate", noted)
    run.objective.gradients(run.stack, run.table.batch(0), run._keys(), run.streams())
    assert len(seen) == convolutions


@ON_A_GPU
@pytest.mark.parametrize("form", ["grouped", "matmul", "fused"])
@pytest.mark.parametrize("loss", ["hinge", "kinds"])
def test_recorded_on_a_gpu(loss: str, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 40 steps, enough for a CUDA graph; `graph=True` would stop where one waits for the GPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    data, exact = samples(), form != "fused"
    setting: dict[str, Any] = {"optimizer": Sgd(lr=0.02, momentum=0.9), "steps": 40, "batch_size": 8, "chunk": 3}
    setting |= {"loss": LOSSES[loss], "convolutions": "grouped"}
    here = population.fit(networks(CNN), data, device="cpu", **setting)
    given = networks(CNN) if exact else [network.float() for network in networks(CNN)]
    setting |= {"convolutions": form, "device": "cuda", "graph": True}
    there = population.fit(given, data if exact else Samples(data.x.float(), data.y), **setting)
    assert str(there.backward).startswith("split backward: ")
    assert there.no_graph is None
    for one, other in zip(here.networks, there.networks):
        assert difference(one, other.cpu().double()) < (1e-7 if exact else 1e-3)


def test_other_losses_have_no_line() -> None:
    setting: dict[str, Any] = {"optimizer": Sgd(lr=0.05), "steps": 1, "chunk": 3}
    assert population.fit(networks(MLP), samples(), loss=losses.CrossEntropy(), **setting).backward is None
