"""Many networks as one program: the same weights as one by one."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

import widemargin as wm
from population.one_by_one import BN_CNN, CNN, MLP, difference, networks, samples, train
from widemargin import losses, optim, population, regularizers
from widemargin.data import Samples
from widemargin.population.optimizers import stackable
from widemargin.training import SGD, AdamW, Cosine, Devices, Exponential, Measure, Nero, RMSprop, TrainingStopped
from widemargin.training.batches import order

MARGIN = losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), at=("input", "2"), classes=2, cross_entropy=0.5)
SUM = regularizers.Jacobian(weight=0.2, form="sum")

CASES: dict[str, dict[str, Any]] = {
    "cross-entropy": {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.05)},
    "momentum": {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.05, momentum=0.9, weight_decay=0.01)},
    "smoothed": {"loss": losses.CrossEntropy(label_smoothing=0.1), "optimizer": SGD(lr=0.05)},
    "nesterov": {"loss": losses.SoftHinge(), "optimizer": SGD(lr=0.05, momentum=0.9, nesterov=True)},
    "adam": {"loss": losses.CrossEntropy(), "optimizer": AdamW(lr=0.01, weight_decay=0.1), "schedule": Cosine()},
    "rmsprop": {"loss": losses.CrossEntropy(), "optimizer": RMSprop(lr=0.003), "schedule": Cosine()},
    "rmsprop with momentum": {
        "loss": MARGIN,
        "optimizer": RMSprop(lr=0.002, alpha=0.9, momentum=0.8, weight_decay=0.02, eps=1e-3),
    },
    "nero": {"loss": losses.Target(alpha=2.0), "optimizer": Nero(lr=0.02), "schedule": Exponential(factor=0.95)},
    "margin": {"loss": MARGIN, "optimizer": SGD(lr=0.05)},
    "margin as printed": {"loss": losses.odn(stabilize=None), "optimizer": SGD(lr=0.001, momentum=0.9)},
    "margin exactly": {"loss": losses.large_margin(second_order=True, statistics="frozen"), "optimizer": SGD(lr=0.05)},
    "margin by second points": {
        "loss": losses.large_margin(second_order="second-point", classes=1),
        "optimizer": SGD(lr=0.05),
        "regularizers": (regularizers.Jacobian(weight=0.2, form="sum", second_order="second-point"),),
    },
    "Jacobian": {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.05), "regularizers": (SUM,)},
    "wide margin": {"loss": losses.WideMargin(), "optimizer": SGD(lr=0.05)},
    "wide margin of a share": {"loss": losses.WideMargin(share=0.3), "optimizer": SGD(lr=0.05)},
    "Frobenius": {
        "loss": losses.GeneralizedCrossEntropy(),
        "optimizer": SGD(lr=0.05),
        "regularizers": (regularizers.JacobianFrobenius(weight=0.2, projections=None),),
    },
    "Jacobian in pairs": {
        "loss": losses.large_margin(statistics="frozen"),
        "optimizer": AdamW(lr=0.01),
        "regularizers": (regularizers.Jacobian(weight=0.1, form="pairwise-sum"), regularizers.WeightDecay(weight=0.01)),
    },
}


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("kind", [MLP, CNN, BN_CNN])
@pytest.mark.parametrize("case", CASES)
def test_the_weights_of_one_by_one(kind: str, case: str) -> None:
    same_as_one_by_one(kind, case, "grouped")


@pytest.mark.parametrize("case", ["cross-entropy", "margin", "Jacobian"])
def test_the_weights_of_one_by_one_by_matrix_products(case: str) -> None:
    same_as_one_by_one(BN_CNN, case, "matmul")


def same_as_one_by_one(kind: str, case: str, convolutions: Any) -> None:
    given, data = networks(kind, 2), samples()
    setting = {**CASES[case], "steps": 7, "batch_size": 8}
    tolerance = 1e-4 if "second points" in case else 1e-8  # differences of close numbers magnify rounding errors
    done = population.fit(given, data, seeds=[3, 4], chunk=2, convolutions=convolutions, progress=False, **setting)
    assert done.chunks == [2]
    for k, network in enumerate(done.networks):
        alone, steps, loss = train(given[k], data, seed=3 + k, **setting)
        assert difference(network, alone) < tolerance
        assert difference(network, given[k]) > 1e-3
        assert done.steps[k] == steps
        assert done.losses[k] == pytest.approx(loss, rel=tolerance)


@pytest.mark.parametrize("kind", [MLP, BN_CNN])
def test_everything_may_differ(kind: str) -> None:
    given = networks(kind)
    x = samples().x
    data = [samples(seed=k) for k in range(2)] + [Samples(x, torch.arange(21) % 2)]
    each: dict[str, Any] = {
        "α": [losses.Target(alpha=0.5 + k) for k in range(3)],
        "α of every sample": [losses.Target(alpha=tuple(0.1 * k + 0.01 * i for i in range(21))) for k in range(3)],
        "α of either kind": [losses.Target(alpha=1.0), losses.Target(alpha=(0.5,) * 21), losses.Target(alpha=2.0)],
        "γ": [losses.large_margin(gamma=1.0), losses.large_margin(gamma=3.0), losses.odn()],
        "hinge": [losses.MultiClassHinge(gamma=1.0 + k % 2) for k in range(3)],
        "kind": [losses.CrossEntropy(), losses.SoftHinge(), losses.large_margin(at=("2",))],
        "places": [losses.large_margin(at=("2",)), losses.large_margin(), losses.large_margin(classes=2)],
    }
    for loss in each.values():
        rates = [SGD(lr=0.01 * (k + 1), momentum=0.5) for k in range(3)]
        setting: dict[str, Any] = {"steps": 6, "batch_size": 10}
        done = population.fit(given, data, loss=loss, optimizer=rates, seeds=[7, 7, 9], chunk=3, **setting)
        for k, network in enumerate(done.networks):
            alone, _, value = train(given[k], data[k], loss=loss[k], optimizer=rates[k], seed=[7, 7, 9][k], **setting)
            assert difference(network, alone) < 1e-10
            assert done.losses[k] == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(
    "optimizer", [AdamW, Nero, RMSprop, partial(RMSprop, momentum=0.5), partial(RMSprop, eps=0.1, eps_inside_sqrt=True)]
)
def test_learning_rates_may_differ(optimizer: Any) -> None:
    given, data = networks(CNN), samples()
    rates = [optimizer(lr=0.003 * (k + 1)) for k in range(3)]
    done = population.fit(given, data, loss=losses.CrossEntropy(), optimizer=rates, steps=8, batch_size=None, chunk=3)
    for k, network in enumerate(done.networks):
        alone, _, _ = train(
            given[k], data, loss=losses.CrossEntropy(), optimizer=rates[k], steps=8, batch_size=None, seed=0
        )
        assert difference(network, alone) < 1e-10


@pytest.mark.parametrize("case", ["cross-entropy", "margin", "Jacobian"])
def test_it_is_fit_with_the_same_seed(case: str) -> None:
    given, data = networks(BN_CNN, 2), samples()
    setting = {**CASES[case], "batch_size": 8}
    if case == "Jacobian":  # classes drawn from every network's own stream
        random = regularizers.Jacobian(weight=0.2), regularizers.JacobianFrobenius(weight=0.1, projections=1)
        setting["regularizers"] = random
    done = population.fit(given, data, seeds=[3, 4], steps=6, chunk=2, **setting)
    for k, network in enumerate(given):
        here: dict[str, Any] = {"callbacks": [Measure(every=None)], "devices": Devices(accelerator="cpu")}
        alone = wm.fit(network, data, epochs=2, seed=3 + k, **here, **setting).model
        assert difference(done.networks[k], alone) < 1e-10


@pytest.mark.parametrize("loss", [losses.CrossEntropy(), MARGIN, losses.MarginLoss(second_order="second-point")])
def test_dropout_is_drawn_by_each_network_alone(loss: Any) -> None:
    given, data = networks(CNN, 4, dropout=0.5), samples()
    setting: dict[str, Any] = {"loss": loss, "optimizer": SGD(lr=0.05), "regularizers": (SUM,), "steps": 6}
    together = population.fit(given, data, batch_size=8, seeds=[1, 2, 3, 4], chunk=4, **setting)
    alone = population.fit(given, data, batch_size=8, seeds=[1, 2, 3, 4], chunk=1, **setting)
    other = population.fit(given, data, batch_size=8, seeds=[1, 2, 3, 5], chunk=4, **setting)
    gaps = [difference(a, b) for a, b in zip(together.networks, alone.networks)]
    assert max(gaps) < 1e-10
    others = [difference(a, b) for a, b in zip(together.networks, other.networks)]
    assert max(others[:3]) < 1e-10 < 1e-3 < others[3]


def test_dropout_differs_between_calls_layers_passes_steps_and_seeds() -> None:
    torch.manual_seed(0)
    given = [nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5), nn.Linear(36, 3)).double()] * 2
    x = Samples(torch.ones(5, 36, dtype=torch.float64), torch.arange(5) % 3)
    seen: list[Tensor] = []

    @dataclass(frozen=True)
    class Look:
        def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            seen.extend(model.get_submodule(name)(x) for name in "001")
            return losses.CrossEntropy()(model, x, y)

    setting: dict[str, Any] = {"loss": Look(), "regularizers": (Look(),), "steps": 2, "batch_size": None}
    population.fit(given, x, optimizer=SGD(lr=0.1), seeds=[1, 2], **setting)
    assert {0.0, 2.0} == set(torch.stack(seen).unique().tolist())
    assert len({tuple(mask.flatten().tolist()) for mask in seen}) == len(seen) == 2 * 2 * 2 * 3


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_chunks_change_nothing(chunk: int) -> None:
    given, data = networks(BN_CNN, 5, dropout=0.2), samples()
    setting: dict[str, Any] = {"loss": MARGIN, "optimizer": AdamW(lr=0.01), "steps": 4, "batch_size": 8}
    whole = population.fit(given, data, chunk=4, **setting)
    parts = population.fit(given, data, chunk=chunk, **setting)
    assert whole.chunks == [4, 1]
    assert parts.chunks == {1: [1] * 5, 2: [2, 2, 1], 5: [5]}[chunk]
    assert max(difference(a, b) for a, b in zip(whole.networks, parts.networks)) < 1e-10


@pytest.mark.parametrize(
    "optimizer", [AdamW(lr=0.03), Nero(lr=0.02), RMSprop(lr=0.0003, momentum=0.5), SGD(lr=0.02, momentum=0.5)]
)
def test_a_network_that_is_done_is_left_as_it_is(optimizer: Any) -> None:
    given, data = networks(BN_CNN, 4), [samples(seed=k % 2) for k in range(4)]
    setting: dict[str, Any] = {"steps": 40, "batch_size": 8, "until": 0.35}
    targets = [losses.Target(alpha=1.0 - k / 20) for k in range(4)]
    rates = [type(optimizer)(**{**vars(optimizer), "lr": optimizer.lr * (1 + k / 4)}) for k in range(4)]
    done = population.fit(given, data, loss=targets, optimizer=rates, chunk=4, **setting)
    assert len(set(done.steps)) > 2
    for k, network in enumerate(done.networks):
        alone, steps, value = train(given[k], data[k], loss=targets[k], optimizer=rates[k], seed=k, **setting)
        assert difference(network, alone) < 1e-8
        assert done.steps[k] == steps
        assert done.losses[k] == pytest.approx(value)
        assert steps == 40 or value < 0.35


def test_a_binary_network_and_its_signs() -> None:
    given, data = networks(MLP, outputs=1), samples(classes=2)
    for loss in (losses.CrossEntropy(), losses.Target(alpha=0.5), losses.large_margin()):
        done = population.fit(given, data, loss=loss, optimizer=SGD(lr=0.1), steps=5, chunk=3)
        for k, network in enumerate(done.networks):
            alone, _, _ = train(given[k], data, loss=loss, optimizer=SGD(lr=0.1), steps=5, batch_size=128, seed=k)
            assert difference(network, alone) < 1e-10


def test_frozen_shared_and_unused_weights() -> None:
    class Odd(nn.Module):
        seen: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(36, 36)
            self.again = nn.Linear(36, 36)
            self.again.weight = self.first.weight
            self.unused, self.output = nn.Linear(2, 2), nn.Linear(36, 3)
            self.first.bias.requires_grad_(False)
            self.register_buffer("seen", torch.zeros(()))
            self.register_buffer("nothing", None)

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + len(x)
            out: Tensor = self.output(self.again(self.first(x.flatten(1)).relu()).relu())
            return out

    given, data = population.build(lambda: Odd().double(), range(3)), samples()
    setting: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": AdamW(lr=0.01, weight_decay=0.1), "steps": 4}
    done = population.fit(given, data, batch_size=8, chunk=3, **setting)
    for k, network in enumerate(done.networks):
        alone, _, _ = train(given[k], data, batch_size=8, seed=k, **setting)
        assert difference(network, alone) < 1e-10
        assert isinstance(network, Odd)
        assert network.again.weight is network.first.weight
        assert torch.equal(network.first.bias, given[k].get_parameter("first.bias"))
        assert float(network.seen) == 8 + 8 + 5 + 8


@pytest.mark.parametrize(
    "loss",
    [
        *(losses.CrossEntropy(), losses.WideMargin(), losses.WideMargin(share=0.5), losses.WideMargin(every=2)),
        losses.MarginLoss(at=("0",)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("padding", [None, 2])
def test_networks_of_tokens(loss: Any, padding: int | None) -> None:
    def builder() -> nn.Module:
        return nn.Sequential(nn.Embedding(7, 4, padding), nn.Flatten(), nn.Linear(20, 3)).double()

    y = torch.arange(21) % 3
    data = Samples((torch.randint(7, (21, 5), generator=torch.Generator().manual_seed(0)) + y[:, None]) % 7, y)
    given, setting = population.build(builder, range(3)), {"loss": loss, "optimizer": SGD(lr=0.1), "batch_size": 8}
    done = population.fit(given, data, steps=6, chunk=3, **setting)
    for k, network in enumerate(given):
        before = copy.deepcopy(network)
        here: dict[str, Any] = {"callbacks": [Measure(every=None)], "devices": Devices(accelerator="cpu")}
        alone = wm.fit(network, data, epochs=2, seed=k, **here, **setting).model
        assert difference(done.networks[k], alone) < 1e-10
        assert difference(before, alone) > 1e-3


def test_a_last_batch_of_one_sample_is_joined_to_the_one_before_as_in_fit() -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()

    data = Samples(torch.randn(17, 4, dtype=torch.float64), torch.arange(17) % 3)
    built = population.build(network, [0, 1])
    given: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "batch_size": 8}
    found = population.fit(built, data, steps=4, seeds=[0, 1], **given)
    for seed, (start, trained) in enumerate(zip(built, found.networks)):
        alone = wm.fit(copy.deepcopy(start), data, epochs=2, seed=seed, **given).model
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(trained.state_dict()[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_modules_in_evaluation_mode_stay_there() -> None:
    """As of a network with a frozen part; a network that is in evaluation mode as a whole is trained."""
    given, data = networks(BN_CNN, dropout=0.5), samples()
    setting: dict[str, Any] = {"loss": losses.WideMargin(), "optimizer": SGD(lr=0.1), "steps": 4, "batch_size": 8}
    for network in given:
        network.get_submodule("1").eval()
        next(m for m in network.modules() if isinstance(m, nn.Dropout)).eval()
    done = population.fit(given, data, chunk=3, **setting)
    for k, network in enumerate(done.networks):
        model = copy.deepcopy(given[k])
        moves = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            index = order(21, step // 3, k).split(8)[step % 3]
            moves.zero_grad()
            losses.WideMargin(samples=21)(model, data.x[index], data.y[index]).mean().backward()
            moves.step()
        assert difference(network, model) < 1e-8
        assert torch.equal(network.get_buffer("1.running_mean"), given[k].get_buffer("1.running_mean"))
    whole = population.fit([network.eval() for network in networks(BN_CNN)], data, chunk=3, **setting)
    trained = population.fit(networks(BN_CNN), data, chunk=3, **setting)
    assert difference(whole.networks[0], trained.networks[0]) == 0
    given[1].get_submodule("1").train()
    with pytest.raises(ValueError, match="other modules in evaluation mode at index 1"):
        population.fit(given, data, **setting)


@pytest.mark.parametrize("layer", [spectral_norm(nn.Linear(36, 36)), Noise()], ids=["spectral norm", "own dropout"])
def test_operations_that_vmap_refuses(layer: nn.Module) -> None:
    given = [nn.Sequential(nn.Flatten(), layer, nn.Linear(36, 3)).double() for _ in range(2)]
    with pytest.raises(TypeError, match=r"networks have an operation .*: use fit") as raised:
        population.fit(given, samples(), loss=losses.CrossEntropy(), optimizer=SGD(lr=0.1), steps=2, chunk=2)
    assert "\n" not in str(raised.value)


def test_what_was_given_is_left_alone() -> None:
    given, data = networks(BN_CNN), samples()
    before = [{k: v.clone() for k, v in network.state_dict().items()} for network in given]
    given[0].eval()
    state = torch.get_rng_state()
    done = population.fit(given, data, loss=losses.CrossEntropy(), optimizer=Nero(), steps=3, chunk=2)
    assert torch.equal(state, torch.get_rng_state())
    for network, was in zip(given, before):
        assert all(torch.equal(v, was[k]) for k, v in network.state_dict().items())
    assert [network.training for network in done.networks] == [False, True, True]
    assert len(done) == 3


def test_build_gives_every_seed_its_network() -> None:
    state = torch.get_rng_state()
    one, two = population.build(lambda: nn.Linear(2, 2), [1, 2])
    torch.manual_seed(2)
    assert torch.equal(two.weight, nn.Linear(2, 2).weight)  # type: ignore[arg-type]
    assert not torch.equal(one.weight, two.weight)  # type: ignore[arg-type]
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True), SGD(lr=0.1, momentum=0.9)),
        (partial(torch.optim.Adam, lr=0.01), AdamW(lr=0.01)),
        (partial(torch.optim.AdamW), AdamW(lr=0.001, weight_decay=0.01)),
        (torch.optim.AdamW, AdamW(lr=0.001, weight_decay=0.01)),
        (partial(torch.optim.RMSprop, alpha=0.9), RMSprop(lr=0.01, alpha=0.9)),
        (partial(optim.Nero, lr=0.02), Nero(lr=0.02)),
    ],
)
def test_a_torch_optimizer_by_its_class_or_a_partial_is_its_value(given: Any, value: Any) -> None:
    assert stackable([given], nn.Linear(2, 2)) == [value]


def test_a_pair_of_arrays_is_the_data_of_all_networks_and_a_list_that_of_each() -> None:
    data = samples()
    settings: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "steps": 3, "batch_size": 5}
    for count in (2, 3):
        members = networks(MLP, count)
        expected = population.fit(members, data, **settings)
        pair = population.fit(members, (data.x.numpy(), data.y.numpy()), **settings)
        each = population.fit(members, [(data.x, data.y)] * count, **settings)
        assert pair.losses == each.losses == expected.losses


def test_generators_are_read_once(untyped: None) -> None:
    assert len(population.build(lambda: nn.Linear(2, 2), (seed for seed in range(3)))) == 3  # type: ignore[arg-type]
    settings: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "steps": 3, "batch_size": 5}
    decay = regularizers.WeightDecay(weight=1.0)
    wanted = population.fit(networks(MLP, 1), samples(), regularizers=[decay], **settings)
    found = population.fit(networks(MLP, 1), samples(), regularizers=(one for one in [decay]), **settings)
    assert found.losses == wanted.losses


def test_nero_is_refused_where_rows_are_not_at_dim_0() -> None:
    network = nn.Sequential(nn.ConvTranspose2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 36, 2))
    with pytest.raises(ValueError, match=r"optimizer is NeroOptimizer.*transposed convolution"):
        stackable([Nero(lr=0.02)], network)


@pytest.mark.parametrize("most", [0.05, 0.5, 1e3])
@pytest.mark.parametrize("loss", [losses.CrossEntropy(), MARGIN])
def test_gradients_are_clipped_network_by_network(loss: Any, most: float) -> None:
    """As `fit` does it, which is torch's own function."""
    given, data = networks(MLP), samples()
    setting: dict[str, Any] = {"loss": loss, "optimizer": SGD(lr=0.5), "batch_size": 8, "gradient_clip": most}
    done = population.fit(given, data, seeds=[3, 4, 5], steps=6, chunk=3, **setting)
    for k, network in enumerate(given):
        here: dict[str, Any] = {"callbacks": [Measure(every=None)], "devices": Devices(accelerator="cpu")}
        alone = wm.fit(network, data, epochs=2, seed=3 + k, **here, **setting).model
        assert difference(done.networks[k], alone) < 1e-10


def test_a_network_that_blows_up_is_named() -> None:
    given, data = networks(MLP), samples()
    rates = [SGD(lr=0.01), SGD(lr=1e200), SGD(lr=0.01)]
    with pytest.raises(
        TrainingStopped, match=r"scores of network 1 are not finite; try a smaller learning rate \(now 1e\+200\)"
    ):
        population.fit(given, data, loss=losses.Target(), optimizer=rates, steps=30, chunk=3)


GOOD: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "steps": 2}


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"networks": []}, ValueError, "networks is empty"),
        ({"networks": [3]}, TypeError, "networks has a int at index 0"),
        ({"networks": [nn.Linear(2, 2), nn.Linear(2, 3)]}, ValueError, "another architecture at index 1"),
        ({"networks": [nn.Dropout(0.1), nn.Dropout(0.2)]}, ValueError, "another architecture at index 1"),
        ({"networks": [nn.ReLU()]}, ValueError, "nothing to train"),
        (
            {"networks": [nn.Sequential(nn.Linear(36, 3), nn.AlphaDropout(0.1))]},
            TypeError,
            "layer '1', AlphaDropout",
        ),
        ({"networks": [nn.Sequential(nn.BatchNorm1d(3, momentum=None))]}, TypeError, "layer '0', BatchNorm1d"),
        ({"steps": 0}, ValueError, "steps is 0"),
        ({"steps": None}, TypeError, "steps is None"),
        ({"batch_size": 2.0}, TypeError, "batch_size is 2.0"),
        ({"chunk": True}, TypeError, "chunk is True"),
        ({"until": -1.0}, ValueError, "until is -1"),
        ({"gradient_clip": 0}, ValueError, "gradient_clip is 0"),
        ({"convolutions": "fft"}, ValueError, "convolutions is 'fft', expected"),
        ({"loss": [losses.CrossEntropy()]}, ValueError, "loss has 1 entries, but there are 3 networks"),
        ({"loss": losses.CrossEntropy}, TypeError, "loss is <class"),
        ({"loss": losses.Target(alpha=(1.0, 2.0))}, ValueError, "loss 0 has 2 alphas, expected"),
        ({"optimizer": print}, TypeError, "optimizer is <built-in function print>"),
        ({"optimizer": partial(torch.optim.Adam, weight_decay=0.1)}, TypeError, "optimizer is functools.partial.*Adam"),
        ({"optimizer": torch.optim.Adagrad}, TypeError, "optimizer is <class .*Adagrad"),
        ({"optimizer": partial(torch.optim.Adagrad, lr=0.1)}, TypeError, "optimizer is functools.partial.*Adagrad"),
        ({"optimizer": [SGD(lr=1.0)] * 2 + [AdamW()]}, ValueError, "expected to differ in lr alone"),
        ({"seeds": [1, 2]}, ValueError, "seeds has 2 entries, but there are 3 networks"),
        ({"seeds": [1, 2, 3.0]}, TypeError, "seeds is 3.0"),
        ({"data": [samples()] * 2}, ValueError, "data has 2 data sets, but there are 3 networks"),
        (
            {"data": [samples(), samples(), samples(20)]},
            ValueError,
            "data has inputs of shape .20, 1, 6, 6. at index 2",
        ),
        ({"loss": losses.large_margin(at=("fc",))}, ValueError, "at has 'fc', which is no module"),
    ],
)
def test_a_mistake_gets_its_sentence(change: dict[str, Any], error: type[Exception], sentence: str) -> None:
    setting = {"networks": networks(MLP), "data": samples(), **GOOD, **change}
    with pytest.raises(error, match=sentence):
        population.fit(setting.pop("networks"), setting.pop("data"), **setting)
