"""`WideMargin` in everyday training: loops, autocast, torch.compile, checkpointing, DDP, `fit`, and in other losses."""

from __future__ import annotations

import contextlib
import copy
import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_wine
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import widemargin as wm
from losses.ddp_wide_margin import LOSSES, NAMES, gradients
from losses.wide_networks import CASES
from subprocesses import child_env
from test_places_wrapped import Backend, dynamo
from training.cases import CPU, network, samples
from widemargin import attacks, losses, margins
from widemargin.losses import CrossEntropy, WideMargin, wide_margin
from widemargin.training import SGD, AdamW, Checkpoint, Devices


def clouds(size: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    data = samples(size, seed=seed, dtype=torch.float32)
    return data.x, data.y


def grads(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same(found: dict[str, Tensor], expected: dict[str, Tensor], rtol: float = 1e-8) -> None:
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-11)
    assert any(bool(value.any()) for value in expected.values())


@pytest.mark.parametrize("optimizer", [SGD(lr=0.03, momentum=0.9), AdamW(lr=1e-3)])
def test_a_table_in_its_own_units_behind_batch_norm_is_learnt(optimizer: Any) -> None:
    """The deviations of its features are 0.1 to 300: with steps of one length in all of them networks diverged."""
    table = load_wine()
    x, y = torch.tensor(table.data).float(), torch.tensor(table.target).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(13), nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3))
    wm.fit(model, (x[::2], y[::2]), loss=WideMargin(), optimizer=optimizer, epochs=60, batch_size=30, devices=CPU)
    assert wm.measure(model, (x[1::2], y[1::2])).accuracy > 0.93


@pytest.mark.parametrize("values", ["digits", "constant columns", "rare values"])
def test_columns_that_hardly_vary_behind_batch_norm_are_learnt(values: str) -> None:
    """Batch norm magnifies them: steps along them made networks diverge."""
    generator = torch.Generator().manual_seed(0)
    if values == "digits":
        data = wm.data.subset(wm.data.load("digits").train, count=300, seed=0, balanced=True)
        x, y = data.x.flatten(1), data.y
    else:
        y = torch.arange(300) % 3
        more = (
            torch.ones(300, 2)
            if values == "constant columns"
            else (torch.rand(300, 6, generator=generator) < 0.02) * 1.0
        )
        clouds = torch.randn(300, 8, generator=generator) + 2 * torch.randn(3, 8, generator=generator)[y]
        x = torch.cat([clouds, more], dim=1)
    torch.manual_seed(0)
    width, classes = x.shape[1], int(y.max()) + 1
    model = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, classes))
    wm.fit(model, (x, y), optimizer=SGD(lr=0.05, momentum=0.9), epochs=10, batch_size=32, devices=CPU)
    assert wm.measure(model, (x, y)).accuracy > 0.95


@pytest.mark.parametrize("function", [torch.log1p, torch.sqrt])
def test_steps_do_not_leave_the_domain_of_a_network(function: Callable[[Tensor], Tensor]) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layer(function(x))
            return scores

    torch.manual_seed(0)
    y = torch.arange(60) % 3
    x = torch.poisson(torch.rand(60, 8) * torch.tensor([2.0, 20.0, 90.0])[y][:, None])
    model = Counts()
    wm.fit(model, (x, y), optimizer=AdamW(lr=0.05), epochs=30, batch_size=20, devices=CPU)
    assert wm.measure(model, (x, y), at=("output",)).accuracy > 0.9


class Depth(nn.Module):
    """Stochastic depth: other layers run in every pass."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()) for _ in range(4)]
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x) if not self.training or torch.rand(()) < 0.5 else x
        scores: Tensor = self.head(x)
        return scores


class Ghost(nn.Module):
    """Batch norm of groups of ten samples."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.cat([self.norm(part) for part in x.split(10)]))
        return scores


@pytest.mark.parametrize("build", [Depth, Ghost])
def test_a_part_of_the_batch_may_run_other_layers(build: Callable[[], nn.Module]) -> None:
    x, y = clouds()
    torch.manual_seed(0)
    model = build()
    wm.fit(model, (x, y), loss=WideMargin(share=0.25), optimizer=AdamW(lr=0.02), epochs=40, batch_size=40, devices=CPU)
    assert wm.measure(model, (x, y)).accuracy > 0.9
    model.train()
    for _ in range(10):
        whole, part = (WideMargin(share=share)(model, x, y).detach().mean() for share in (1.0, 0.5))
        assert float(part) < 3 * float(whole) + 0.3


def test_the_loss_has_the_dtype_of_the_base() -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layer(x.float())
            return scores

    x, y = clouds()
    for loss in (WideMargin(), WideMargin(share=0.5)):
        assert loss(Cast(), x.double(), y).dtype == torch.float32


def test_a_plain_loop_learns_and_widens_the_margins() -> None:
    x, y = clouds()
    distances = []
    for loss in (CrossEntropy(), WideMargin()):
        model = network(dtype=torch.float32)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(200):
            optimizer.zero_grad()
            loss(model, x, y).mean().backward()
            optimizer.step()
        measured = margins.measure(model, (x, y))
        assert float((measured.predictions == y).float().mean()) > 0.95
        distances.append(float(measured.margins["input"].mean()))
    assert distances[1] > 1.1 * distances[0]


def test_accumulated_and_clipped_gradients() -> None:
    model = CASES["mlp"].network()
    parts = [CASES["mlp"].batch(seed=seed) for seed in range(3)]
    alone = []
    for x, y in parts:
        model.zero_grad()
        WideMargin()(model, x, y).mean().backward()
        alone.append(grads(model))
    model.zero_grad()
    for x, y in parts:
        (WideMargin()(model, x, y).mean() / len(parts)).backward()
    mean = {name: torch.stack([g[name] for g in alone]).mean(dim=0) for name in alone[0]}
    same(grads(model), mean)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert float(norm) > 0.1
    total = sum(float(g.square().sum()) for g in grads(model).values()) ** 0.5
    assert total == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("name", ["mlp", "cnn", "batch norm", "group norm", "tokens", "attention"])
def test_bfloat16_autocast(name: str) -> None:
    """Within 4 % in the values and 10 % in the gradients (norm of the difference), as rounding to 8 bits allows."""
    model, (x, y) = CASES[name].network().float(), CASES[name].batch(64)
    x = x.float() if x.is_floating_point() else x
    found = []
    for half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            values = WideMargin(strength=3.0)(model, x, y)
        assert values.dtype == torch.float32
        values.mean().backward()
        found.append((values.detach(), torch.cat([g.flatten() for g in grads(model).values()])))
    (values, gradient), (half_values, half_gradient) = found
    assert float((half_values - values).norm() / values.norm()) < 0.04
    assert float((half_gradient - gradient).norm() / gradient.norm()) < 0.1


@dynamo
@pytest.mark.parametrize("way", ["torch.compile", "in place"])
@pytest.mark.parametrize("name", ["mlp", "batch norm", "tokens"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_compiled_network(name: str, way: str, share: float) -> None:
    """Compiled where that is possible: for steps at the input, without BatchNorm. Also with batches of other sizes."""
    torch.compiler.reset()
    batches = [CASES[name].batch(size) for size in (11, 7, 11, 4, 9)]
    model, loss = CASES[name].network(), WideMargin(share=share)
    for x, y in batches:
        loss(model, x, y).mean().backward()
    expected = grads(model)
    model, backend = CASES[name].network(), Backend()
    compiled: Any = model
    if way == "in place":
        model.compile(backend=backend)
    else:
        compiled = torch.compile(model, backend=backend)
    for x, y in batches:
        loss(compiled, x, y).mean().backward()
    assert (backend.runs > 0) == (name == "mlp" and way == "torch.compile")
    same(grads(model), expected)


class Checkpointed(nn.Module):
    """A network whose middle is computed again in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return scores


@pytest.mark.parametrize("name", ["mlp", "cnn", "group norm", "dropout", "lstm", "attention"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_checkpointed_layers(name: str, share: float) -> None:
    model, (x, y) = CASES[name].network(), CASES[name].batch()
    torch.manual_seed(3)
    loss = WideMargin(share=share)
    loss(model, x, y).mean().backward()
    expected = grads(model)
    model.zero_grad()
    torch.manual_seed(3)
    loss(Checkpointed(model), x, y).mean().backward()
    same(grads(model), expected)


def test_a_place_inside_a_checkpointed_part_is_an_error() -> None:
    """It would be computed again without the step."""
    model, (x, y) = CASES["tokens"].network(), CASES["tokens"].batch()
    with pytest.raises(RuntimeError, match=r"^at has 'inner\.embedding'.*torch\.utils\.checkpoint"):
        WideMargin()(Checkpointed(model), x, y)


def test_checkpointed_batch_norm_is_an_error() -> None:
    model, (x, y) = CASES["batch norm"].network(), CASES["batch norm"].batch()
    with pytest.raises(RuntimeError, match=r"BatchNorm.*torch\.utils\.checkpoint"):
        WideMargin()(Checkpointed(model), x, y)
    model.eval()
    WideMargin()(Checkpointed(model), x, y).mean().backward()
    expected = grads(model)
    model.zero_grad()
    WideMargin()(model, x, y).mean().backward()
    same(grads(model), expected)


def test_two_processes_of_ddp(tmp_path: Path) -> None:
    """Their gradients are the mean of those that the two halves of the batch have alone."""
    command = [sys.executable, str(Path(__file__).parent / "ddp_wide_margin.py"), str(tmp_path)]
    environment = child_env(OMP_NUM_THREADS="1")
    started = [subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE) for rank in range(2)]
    said = [process.communicate(timeout=120)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    for name, form in itertools.product(NAMES, LOSSES):
        first, second = (load_file(tmp_path / f"{name}.{form}.{rank}.safetensors") for rank in range(2))
        assert all(torch.equal(first[key], second[key]) for key in first)
        halves = [gradients(CASES[name].network(), name, rank, LOSSES[form]) for rank in range(2)]
        same(first, {key: (halves[0][key] + halves[1][key]) / 2 for key in halves[0]})


# ------------------------------------------------------------------------------------------------------------------ fit


def normed() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)).double()


SETTINGS: dict[str, Any] = {
    "optimizer": AdamW(lr=0.01),
    "epochs": 3,
    "batch_size": 16,
    "seed": 3,
    "devices": CPU,
}


@pytest.mark.parametrize("loss", [WideMargin(), WideMargin(share=0.5, at=("input", "2")), WideMargin(every=3)])
def test_fit_goes_on_from_a_checkpoint_to_the_same_weights(loss: WideMargin, tmp_path: Path) -> None:
    """With BatchNorm and dropout, and validation data."""
    data, held_out = samples(47), samples(20, seed=5)
    unbroken = wm.fit(normed(), data, loss=loss, validation=held_out, **SETTINGS)
    assert any(row["split"] == "validation" for row in unbroken.history.rows)

    calls = itertools.count(1)

    @dataclass(frozen=True)
    class Breaks(losses.Wrapper):
        loss: losses.Loss

        def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            if model.training and next(calls) == 6:
                raise InterruptedError
            return x, y

    saved = Checkpoint(tmp_path, every=2)
    for _ in range(2):
        with contextlib.suppress(InterruptedError):
            model = normed()
            wm.fit(model, data, loss=Breaks(loss), validation=held_out, checkpoint=saved, **SETTINGS)
    assert next(calls) == 6 + (9 - 4) + 1
    torch.testing.assert_close(model.state_dict(), unbroken.model.state_dict(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("every", [1, 2])
def test_fit_is_the_plain_loop(every: int) -> None:
    data, loss = samples(32), WideMargin(strength=9.0, every=every)
    done = wm.fit(network(), data, loss=loss, **(SETTINGS | {"optimizer": SGD(lr=0.1), "batch_size": 32}))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        WideMargin(strength=0.0 if step % every else 9.0 * every)(model, data.x, data.y).mean().backward()
        optimizer.step()
    torch.testing.assert_close(done.model.state_dict(), model.state_dict(), rtol=1e-9, atol=1e-12)


def test_fit_in_mixed_precision() -> None:
    data = samples(dtype=torch.float32)
    found = [
        wm.fit(network(dtype=torch.float32), data, loss=WideMargin(), **(SETTINGS | {"devices": devices})).model
        for devices in (CPU, Devices(accelerator="cpu", precision="bf16-mixed"))
    ]
    start = torch.cat([p.detach().flatten() for p in network(dtype=torch.float32).parameters()])
    exact, half = (torch.cat([p.detach().flatten() for p in model.parameters()]) for model in found)
    assert float((half - exact).norm()) < 0.1 * float((exact - start).norm())


# --------------------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("name", ["cnn", "batch norm", "dropout"])
def test_adversarial_training(name: str) -> None:
    """The loss at the adversarial examples."""
    model, (x, y) = CASES[name].network(), CASES[name].batch()
    loss = attacks.Adversarial(loss=WideMargin(), epsilon=0.1, step=0.05, steps=3, bounds=None)
    torch.manual_seed(4)
    found = x_hat, _ = loss.prepare(model, x, y)
    expected = WideMargin()(copy.deepcopy(model), *found)
    assert float((x_hat - x).abs().max()) > 0.01
    torch.manual_seed(4)
    torch.testing.assert_close(loss(model, x, y), expected, rtol=1e-9, atol=0)
    assert loss.capturable


@dataclass(frozen=True)
class Negated(losses.Wrapper):
    """The loss at inputs with another sign."""

    loss: losses.Loss

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return -x, y


def test_a_wrapper() -> None:
    model, (x, y) = CASES["mlp"].network(), CASES["mlp"].batch()
    expected = WideMargin()(model, -x, y)
    torch.testing.assert_close(Negated(WideMargin())(model, x, y), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("data", ["tensors", "dataset", "loader"])
def test_fit_knows_the_number_of_samples(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clouds()
    dataset = torch.utils.data.TensorDataset(x, y)
    given: Any = {
        "tensors": (x, y),
        "dataset": torch.utils.data.Subset(dataset, range(60)),
        "loader": torch.utils.data.DataLoader(dataset, batch_size=16),
    }[data]

    def trained(strength: float) -> dict[str, Tensor]:
        model, loss = network(dtype=torch.float32), WideMargin(strength=strength)
        wm.fit(model, given, loss=loss, optimizer=SGD(lr=0.1), epochs=2, batch_size=16, devices=CPU)
        return model.state_dict()

    expected, other = trained(0.5), trained(8.0)  # (15/60)² of the weight
    monkeypatch.setattr(wide_margin, "FULL_WEIGHT_SAMPLES", 15)
    torch.testing.assert_close(trained(8.0), expected, rtol=1e-5, atol=1e-6)
    assert any(not torch.allclose(other[name], expected[name], atol=1e-3) for name in expected)


def test_populations_know_the_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(strength: float) -> dict[str, Tensor]:
        both, (x, y) = [WideMargin(strength=strength), WideMargin(strength=strength, share=0.5)], clouds()
        models = [network(dtype=torch.float32) for _ in both]
        done = wm.population.fit(models, (x, y), loss=both, optimizer=SGD(lr=0.1), steps=5, batch_size=16)
        return done.networks[0].state_dict()

    expected = trained(0.5)
    monkeypatch.setattr(wide_margin, "FULL_WEIGHT_SAMPLES", 15)
    torch.testing.assert_close(trained(8.0), expected, rtol=1e-5, atol=1e-6)
