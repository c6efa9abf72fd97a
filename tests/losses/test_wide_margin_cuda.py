"""`WideMargin` on a GPU: as on the CPU, and in CUDA graphs as without them; skipped where there is no GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from losses.wide_networks import CASES, Attention, Lstm, cnn
from widemargin._cuda import graphs
from widemargin.losses import WideMargin
from widemargin.margins.second_point import TwoPasses
from widemargin.training import SGD, Devices, fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
DEVICE = torch.device("cuda")


@pytest.fixture(autouse=True)
def unseen_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)  # beartype, which looks on in tests, draws from it


def gradients(network: nn.Module, values: Tensor) -> dict[str, Tensor]:
    named = dict(network.named_parameters())
    found = torch.autograd.grad(values.mean(), list(named.values()), materialize_grads=True)
    return {name: gradient.cpu() for name, gradient in zip(named, found)}


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("name", [name for name in CASES if "dropout" not in name])
def test_values_and_gradients_are_those_of_the_cpu(name: str, share: float) -> None:
    here, (x, y) = CASES[name].network(), CASES[name].batch()
    there = copy.deepcopy(here).to(DEVICE)
    loss = WideMargin(strength=5.0, share=share)
    expected, found = loss(here, x, y), loss(there, x.to(DEVICE), y.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(gradients(there, found), gradients(here, expected), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        {n: b.cpu() for n, b in there.named_buffers()}, dict(here.named_buffers()), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("name", ["cnn", "batch norm", "group norm", "attention", "lstm"])
def test_bfloat16_autocast_on_a_gpu(name: str) -> None:
    """Within 4 % in the values and 10 % in the gradients (norm of the difference)."""
    network, (x, y) = CASES[name].network().float().to(DEVICE), CASES[name].batch(64)
    found = []
    for half in (False, True):
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            values = WideMargin(strength=3.0)(network, x.float().to(DEVICE), y.to(DEVICE))
        gradient = torch.cat([g.flatten() for g in gradients(network, values).values()])
        found.append((values.detach(), gradient))
    (values, gradient), (half_values, half_gradient) = found
    assert float((half_values - values).norm() / values.norm()) < 0.04
    assert float((half_gradient - gradient).norm() / gradient.norm()) < 0.1


class Flat(nn.Sequential):
    """Layers whose output is flattened to scores."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers, nn.Flatten())


class Weighted(nn.Module):
    """Attention that gives its weights, with dropout inside `F.multi_head_attention_forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.attention(x, x, x)[0][:, 0]
        return scores


RANDOM: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dropout": (lambda: Flat(nn.Dropout(0.3), nn.Tanh(), nn.Dropout(0.5)), (4, 6)),
    "dropout in place": (lambda: Flat(nn.Tanh(), nn.Dropout(0.3, inplace=True)), (4, 6)),
    "dropout of channels": (lambda: Flat(nn.Dropout2d(0.5)), (4, 3, 3)),
    "alpha dropout": (lambda: Flat(nn.AlphaDropout(0.5)), (4, 6)),
    "attention with weights": (Weighted, (4, 6)),
    "lstm": (lambda: Lstm(dropout=0.5), (4, 5)),
    "batch norm and dropout": (lambda: cnn(nn.BatchNorm2d(4), nn.BatchNorm2d(4), dropout=0.5), (2, 6, 6)),
}


@pytest.mark.parametrize("name", [*RANDOM, "attention"])
def test_masks_are_equal_in_both_passes(name: str) -> None:
    """Without a CUDA graph."""
    build, shape = {**RANDOM, "attention": (lambda: Attention(dropout=0.5), (4, 6))}[name]
    network, x = build().to(DEVICE), torch.randn(8, *shape, device=DEVICE)
    two = TwoPasses(network)
    scores, _ = two.first(x.clone(), ("input",))
    assert two.is_random
    torch.testing.assert_close(two.moved(x, {"input": torch.zeros_like(x)}), scores, rtol=1e-4, atol=1e-5)
    assert not torch.equal(two.first(x.clone(), ("input",))[0], scores)


@pytest.mark.parametrize("name", RANDOM)
def test_masks_are_equal_in_both_passes_of_a_cuda_graph(name: str) -> None:
    """And new in every replay."""
    build, shape = RANDOM[name]
    network, x = build().to(DEVICE), torch.randn(8, *shape, device=DEVICE)

    def both(x: Tensor) -> Tensor:
        two = TwoPasses(network)
        scores, _ = two.first(x.clone(), ("input",))
        return torch.stack([scores, two.moved(x, {"input": torch.zeros_like(x)})]).detach()

    step = graphs.CapturedStep(both, DEVICE)
    seen: list[Tensor] = []
    for _ in range(7):
        found = step(x)
        assert isinstance(found, Tensor)
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
        assert not any(torch.equal(found[0], before) for before in seen)
        seen.append(found[0].clone())
    assert step.is_replayed, step.why_not


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("name", ["mlp", "cnn", "batch norm", "group norm", "attention", "binary"])
def test_a_captured_step_is_the_step(name: str, share: float) -> None:
    """The weights and running statistics of a loop, with a batch of another size in between."""
    sizes = (16, 16, 16, 16, 16, 7, 16, 16)
    batches = [tuple(t.to(DEVICE) for t in CASES[name].batch(size, seed=k)) for k, size in enumerate(sizes)]
    states, values = [], []
    for use in (False, True):
        network = CASES[name].network().to(DEVICE)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

        def step(x: Tensor, y: Tensor, network: nn.Module = network, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            losses = WideMargin(share=share)(network, x, y)
            losses.mean().backward()
            optimizer.step()
            return losses.detach()

        captured = graphs.CapturedStep(step, DEVICE)
        run: Callable[..., Any] = captured if use else step
        values.append([run(x, y).clone() for x, y in batches])
        assert captured.is_replayed == use, captured.why_not
        states.append({key: value.clone() for key, value in network.state_dict().items()})
    torch.testing.assert_close(values[1], values[0], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(states[1], states[0], rtol=1e-7, atol=1e-9)


LOSSES = [WideMargin(), WideMargin(share=0.5), WideMargin(share=0.5, every=3), WideMargin(at=("input", "2"))]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("has_norm", [True, False])
def test_fit_is_the_same_with_a_cuda_graph(loss: WideMargin, dropout: float, has_norm: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(100, 1, 8, 8), torch.randint(3, (100,))
    found = []
    for use in (False, True):
        torch.manual_seed(1)
        norm = nn.BatchNorm2d(4) if has_norm else nn.GroupNorm(2, 4)
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(144, 3)
        )
        done = fit(
            network,
            (x, y),
            loss=loss,
            optimizer=SGD(lr=0.05, momentum=0.9),
            epochs=4,
            batch_size=16,
            devices=Devices(accelerator="cuda", cuda_graph=use),
        )
        assert done.settings["CUDA graph"] == ("yes" if use else "no, since cuda_graph is False")
        found.append({name: value.cpu() for name, value in network.state_dict().items()})
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)
