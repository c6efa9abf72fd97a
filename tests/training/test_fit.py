"""`fit` against a loop of ten lines, and what it promises beside: the same every time, nothing left behind."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import widemargin as wm
from training.cases import CPU, UNMEASURED, arguments, network, samples
from widemargin import losses, regularizers
from widemargin.data import Data, Samples
from widemargin.data.seeds import generator
from widemargin.training import SGD, AdamW, Checkpoint, Devices, Exponential, Measure, Steps

HALF = Devices(accelerator="cpu", precision="bf16-mixed")
FIT: dict[str, Any] = {"devices": CPU, "epochs": 2, "batch_size": 20}


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def plain_loop(optimizer: torch.optim.Optimizer, objective: Callable[[Tensor], Tensor], schedule: Any = None) -> None:
    """Two epochs of 47 samples, in batches of 20, 20 and 7, in the order of seed 0."""
    rate = optimizer.param_groups[0]["lr"]
    for epoch in range(2):
        order = torch.randperm(47, generator=generator(f"order of epoch {epoch}", 0))
        for step, index in enumerate(order.split(20)):
            if schedule is not None:
                optimizer.param_groups[0]["lr"] = rate * schedule(epoch + step / 3, 2)
            optimizer.zero_grad()
            objective(index).backward()
            optimizer.step()


@pytest.mark.parametrize("schedule", [None, Steps(at=(1.0,), factors=(0.1,)), Exponential(factor=0.5, every=1 / 3)])
def test_cross_entropy_is_a_plain_loop(schedule: Any) -> None:
    data, model = samples(), network()
    plain_loop(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        lambda index: F.cross_entropy(model(data.x[index]), data.y[index]),
        schedule,
    )
    settings = {} if schedule is None else {"schedule": schedule}
    result = wm.fit(network(), data, loss=losses.CrossEntropy(), optimizer=SGD(lr=0.1, momentum=0.9), **settings, **FIT)
    torch.testing.assert_close(weights(result.model), weights(model), rtol=0, atol=1e-12)


def test_the_default_loss_is_the_wide_margin_one() -> None:
    """Against a plain loop of one batch an epoch, in which the order of the samples does not matter."""
    data = samples()
    model, other = network(), network()
    wm.fit(model, data, epochs=3, batch_size=len(data), optimizer=SGD(lr=0.1), devices=CPU, callbacks=[UNMEASURED])
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        wm.WideMargin()(other, data.x, data.y).mean().backward()
        optimizer.step()
    for mine, plain in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-6)


def test_regularizers_of_samples_are_averaged_and_those_of_weights_added() -> None:
    data, model = samples(), network()
    jacobian, decay = regularizers.Jacobian(weight=0.3, form="sum"), regularizers.WeightDecay(weight=0.01)
    plain_loop(
        torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0),
        lambda index: (
            F.cross_entropy(model(data.x[index]), data.y[index])
            + jacobian(model, data.x[index], data.y[index]).mean()
            + decay(model)
        ),
    )
    result = wm.fit(
        network(), data, loss=losses.CrossEntropy(), regularizers=(jacobian, decay), optimizer=AdamW(lr=0.01), **FIT
    )
    torch.testing.assert_close(weights(result.model), weights(model), rtol=0, atol=1e-12)


@pytest.mark.parametrize("most", [0.1, 1, 1e3])
def test_gradients_are_clipped_as_torch_does_it(most: float) -> None:
    data, model = samples(), network()

    norms: list[float] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), most))))
    plain_loop(optimizer, lambda index: F.cross_entropy(model(data.x[index]), data.y[index]))
    clipped = wm.fit(network(), data, loss=losses.CrossEntropy(), optimizer=SGD(lr=0.1), gradient_clip=most, **FIT)
    torch.testing.assert_close(weights(clipped.model), weights(model), rtol=0, atol=1e-12)
    assert (max(norms) > most) == (most < 100)


@pytest.mark.parametrize(
    ("value", "torchs"),
    [
        (SGD(lr=0.1, momentum=0.9), functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
        (SGD(lr=1e-3), torch.optim.SGD),
    ],
)
def test_a_torch_optimizer_in_a_partial_or_its_class_will_do(value: Any, torchs: Any) -> None:
    ours = wm.fit(network(), samples(), loss=losses.CrossEntropy(), optimizer=value, **FIT)
    theirs = wm.fit(network(), samples(), loss=losses.CrossEntropy(), optimizer=torchs, **FIT)
    assert torch.equal(weights(ours.model), weights(theirs.model))


def test_the_alpha_of_a_sample_travels_with_it() -> None:
    data, model = samples(), network()
    alpha = torch.linspace(0.5, 3, 47, dtype=torch.float64)
    plain_loop(
        torch.optim.SGD(model.parameters(), lr=0.02),
        lambda index: (
            (model(data.x[index]) - alpha[index, None] * F.one_hot(data.y[index], 3)).square().sum(dim=1).mean()
        ),
    )
    result = wm.fit(
        network(),
        data,
        loss=losses.Target(alpha=tuple(alpha.tolist())),
        optimizer=SGD(lr=0.02),
        validation=data,
        **FIT,
    )
    torch.testing.assert_close(weights(result.model), weights(model), rtol=0, atol=1e-12)
    assert "loss" in result.history.last("train")
    assert "loss" not in result.history.last("validation")  # which has no α


@pytest.mark.parametrize("name", ["large margin", "Jacobian", "loader"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name: str) -> None:
    first, again = wm.fit(**arguments(name)), wm.fit(**arguments(name))
    assert torch.equal(weights(first.model), weights(again.model))
    assert first.history == again.history
    other = wm.fit(**(arguments(name) | {"seed": 4}))
    assert not torch.equal(weights(first.model), weights(other.model))


def test_dropout_and_random_regularizers_follow_the_seed_and_nothing_else() -> None:
    def trained(**settings: Any) -> Tensor:
        torch.manual_seed(random.randrange(2**30))
        regularizer = regularizers.Jacobian(weight=0.1)
        settings = {"callbacks": [UNMEASURED], **settings}
        loss = losses.CrossEntropy()
        return weights(
            wm.fit(network(dropout=0.5), samples(), loss=loss, regularizers=(regularizer,), **settings).model
        )

    assert torch.equal(trained(**FIT), trained(**FIT))
    assert torch.equal(trained(**FIT), trained(**FIT, callbacks=[]))  # measuring draws nothing from the training
    assert not torch.equal(trained(**FIT), trained(**FIT, seed=1))


class Unstacked(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, of: Samples) -> None:
        self.of = of

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.of[i]


@pytest.mark.parametrize(
    "form",
    [
        lambda s: (s.x, s.y),
        lambda s: TensorDataset(s.x, s.y),
        lambda s: Data("own", train=s, test=samples(9), classes=("a", "b", "c"), bounds=None),
        Unstacked,
    ],
)
@pytest.mark.parametrize("name", ["cross-entropy", "alpha of each sample"])
def test_every_form_of_the_data_gives_the_same_weights(form: Callable[[Samples], Any], name: str) -> None:
    expected = wm.fit(**arguments(name))
    result = wm.fit(**(arguments(name) | {"data": form(samples())}))
    assert torch.equal(weights(result.model), weights(expected.model))
    assert result.history == expected.history


def test_frames_and_names_of_classes_train_the_same_weights() -> None:
    train, other = samples(20), samples(9, seed=1)
    names = np.array(["cat", "dog", "emu"])
    given: dict[str, Any] = {"loss": losses.CrossEntropy(), "epochs": 1, "batch_size": 8, "devices": CPU}
    expected = wm.fit(network(), train, validation=other, **given)
    # Without its first class, the validation set has the indices of the training set all the same.
    frame = pd.DataFrame(train.x.numpy())
    rows = other.y > 0
    found = wm.fit(
        network(), (frame, names[train.y]), validation=(other.x[rows].numpy(), names[other.y[rows]]), **given
    )
    assert found.classes == ("cat", "dog", "emu")
    for one, two in zip(expected.model.parameters(), found.model.parameters()):
        assert torch.equal(one, two)
    selected = wm.fit(network(), train, validation=other.select(rows.nonzero()[:, 0]), **given)
    assert found.history.rows == selected.history.rows
    with pytest.raises(ValueError, match=r"y has 2 classes \('cat', 'dog'\), but the network has 3 scores"):
        wm.fit(network(), (frame[:2], names[train.y][:2]), **given)


def test_a_loader_keeps_its_own_order() -> None:
    data, model = samples(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in zip(data.x.split(20), data.y.split(20)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    loader = DataLoader(data, batch_size=20)
    result = wm.fit(network(), loader, loss=losses.CrossEntropy(), optimizer=SGD(lr=0.1), **FIT)
    torch.testing.assert_close(weights(result.model), weights(model), rtol=0, atol=1e-12)


def test_a_name_will_do() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    result = wm.fit(
        model,
        "digits",
        loss=losses.CrossEntropy(),
        optimizer=AdamW(lr=0.02),
        epochs=3,
        validation="digits",
        callbacks=[Measure(every=3)],
        devices=CPU,
    )
    assert float(result.history.last("validation")["accuracy"]) > 0.5


def test_the_networks_modes_and_the_global_generators_are_left_as_they_were(untyped: None) -> None:
    model = network(dropout=0.5)
    model[2].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    wm.fit(model, samples(), loss=losses.CrossEntropy(), **FIT)
    assert [module.training for module in model.modules()] == modes
    drawn = torch.rand(3).tolist(), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    assert drawn == (torch.rand(3).tolist(), random.random(), np.random.rand())  # noqa: NPY002


def test_it_trains_in_training_mode_and_in_place() -> None:
    @dataclass(frozen=True)
    class Watching:
        def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            assert model is mine
            seen.append(model.training)
            return F.cross_entropy(model(x), y, reduction="none")

    seen: list[bool] = []
    mine = network().eval()
    result = wm.fit(mine, samples(), loss=Watching(), callbacks=[UNMEASURED], **FIT)
    assert result.model is mine
    assert seen == [True] * 6
    assert len(result.history) == 0


def test_float32_data_train_a_float64_network_and_back() -> None:
    expected = wm.fit(network(dtype=torch.float32), samples(dtype=torch.float32), loss=losses.CrossEntropy(), **FIT)
    mixed = wm.fit(network(dtype=torch.float32), samples(dtype=torch.float64), loss=losses.CrossEntropy(), **FIT)
    assert torch.equal(weights(expected.model), weights(mixed.model))


@pytest.mark.parametrize("loss", [losses.CrossEntropy(), losses.large_margin(gamma=2.0)])
def test_bf16_trains_weights_of_float32(loss: Any) -> None:
    data = samples(100, dtype=torch.float32)
    settings = {**FIT, "epochs": 4, "optimizer": AdamW(lr=0.03)}
    result = wm.fit(network(dtype=torch.float32), data, loss=loss, **{**settings, "devices": HALF})
    full = wm.fit(network(dtype=torch.float32), data, loss=loss, **settings)
    assert weights(result.model).dtype == torch.float32
    assert not torch.equal(weights(result.model), weights(full.model))
    assert result.history.last()["accuracy"] == pytest.approx(full.history.last()["accuracy"], abs=0.05)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda: {"epochs": 0}, "epochs is 0"),
        (lambda: {"batch_size": 2.5}, "batch_size is 2.5"),
        (lambda: {"callbacks": [Measure(every=0)]}, "every is 0"),
        (lambda: {"callbacks": [Measure(), Measure()]}, "callbacks has 2 of Measure"),
        (lambda: {"callbacks": [len]}, "callbacks has a builtin_function_or_method"),
        (lambda: {"checkpoint": Checkpoint("there", every=0)}, "every is 0"),
        (lambda: {"gradient_clip": 0.0}, "gradient_clip is 0"),
        (lambda: {"seed": 0.5}, "seed is 0.5"),
        (lambda: {"model": "mlp"}, "model is a str"),
        (lambda: {"model": nn.Flatten()}, "model has no parameter that requires a gradient"),
        (lambda: {"loss": None}, "loss is None"),
        (lambda: {"optimizer": AdamW}, "optimizer is <class .*AdamW'>"),
        (lambda: {"optimizer": torch.optim.SGD(network().parameters())}, "^optimizer is a SGD, expected.*partial.*$"),
        (lambda: {"callbacks": [Measure(at=("inptu",))]}, "at has 'inptu'.*'input'"),
        (lambda: {"callbacks": [Measure(p=0.5)]}, "p is 0.5"),
        (lambda: {"devices": Devices(precision="16-mixed")}, "precision is '16-mixed'"),  # type: ignore[arg-type]
        (lambda: {"devices": Devices(strategy="fsdp")}, "strategy is 'fsdp'"),
        (lambda: {"devices": Devices(backward_memory=-1)}, "backward_memory is -1"),
        (lambda: {"data": 3}, "data is a int"),
    ],
)
def test_bad_arguments_are_named(change: Callable[[], dict[str, Any]], sentence: str, untyped: None) -> None:
    given: dict[str, Any] = {"model": network(), "data": samples(), "loss": losses.CrossEntropy(), **FIT}
    with pytest.raises((ValueError, TypeError), match=sentence):
        wm.fit(**(given | change()))


def test_a_generator_of_regularizers_is_read_once() -> None:
    decay = regularizers.WeightDecay(weight=0.1)
    found = wm.fit(network(), samples(), loss=losses.CrossEntropy(), regularizers=(r for r in [decay]), **FIT)
    expected = wm.fit(network(), samples(), loss=losses.CrossEntropy(), regularizers=[decay], **FIT)
    assert found.settings["regularizers"] == expected.settings["regularizers"]
    assert torch.equal(weights(found.model), weights(expected.model))


def test_a_loss_must_give_one_number_per_sample() -> None:
    with pytest.raises(ValueError, match=r"loss, .*mean_loss, returned the shape \[\] for 20 samples, expected one"):
        wm.fit(network(), samples(), loss=mean_loss, callbacks=[UNMEASURED], **FIT)
    with pytest.raises(ValueError, match=r"a regularizer, .*two_numbers, returned the shape \[2\] for 20 samples"):
        wm.fit(network(), samples(), loss=losses.CrossEntropy(), regularizers=(two_numbers,), **FIT)


def mean_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def two_numbers(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return weights(model)[:2]


def test_labels_out_of_range_are_not_taken_for_a_broken_network() -> None:
    data = Samples(samples().x, samples().y + 1)
    with pytest.raises(ValueError, match=r"y has 3 at index \d+"):
        wm.fit(network(), data, loss=losses.CrossEntropy(), callbacks=[UNMEASURED], **FIT)


def test_a_loader_does_not_tell_positions() -> None:
    loss = losses.Target(alpha=(1.0,) * 47)
    with pytest.raises(ValueError, match="loss needs the positions of the samples, which a DataLoader does not tell"):
        wm.fit(network(), DataLoader(samples(), batch_size=20), loss=loss, **FIT)


def test_the_result_shows_the_last_measurement() -> None:
    found = repr(wm.fit(network(), samples(), loss=losses.CrossEntropy(), epochs=1))
    assert found.startswith("Sequential, trained with CrossEntropy(")
    assert "  train: epoch 1, step 1, objective" in found
    assert "tensor" not in found


def test_trainings_in_threads_have_the_weights_of_those_alone() -> None:
    """They share the global generators, from which dropout and the transforms of a data set draw."""

    class Noisy(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
        of = samples()

        def __len__(self) -> int:
            return len(self.of)

        def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
            return self.of.x[i] + torch.randn(6), self.of.y[i]

    def run(seed: int, model: nn.Module) -> torch.Tensor:
        data = samples() if seed % 2 else Noisy()
        settings: dict[str, Any] = {"loss": losses.CrossEntropy(), "epochs": 6, "batch_size": 10, "devices": CPU}
        return weights(wm.fit(model, data, seed=seed, **settings).model)

    models = [network(dropout=0.5) for _ in range(8)]  # which are seeded by the same generators
    alone = [run(seed, models[seed]) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(4), models[4:]))
    assert all(map(torch.equal, alone, together))
