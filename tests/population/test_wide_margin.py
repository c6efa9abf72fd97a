"""`WideMargin` of many networks as one program: the weights of every network alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from population.one_by_one import BN_CNN, CNN, MLP, difference, networks, samples, train
from widemargin import losses, population
from widemargin._cuda import graphs
from widemargin.losses import WideMargin, wide_margin
from widemargin.training import SGD, AdamW

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))
LOSSES: dict[str, Any] = {
    "default": WideMargin(),
    "strengths": [WideMargin(strength=strength) for strength in (0.5, 3.0, 20.0)],
    "l_1": WideMargin(p=1.0),
    "share": WideMargin(share=0.5),
    "every": WideMargin(strength=5.0, every=2),
    "every, each": [WideMargin(strength=5.0, every=every) for every in (1, 2, 3)],
    "base": [WideMargin(base=losses.SoftHinge()), WideMargin(), WideMargin(strength=2.0)],
    "norms": [WideMargin(p=1.0), WideMargin(p=2.0), WideMargin(share=0.5)],
    "places": WideMargin(at=("input", "2")),
    "other losses beside": [WideMargin(), losses.CrossEntropy(), losses.large_margin()],
}


@pytest.fixture(autouse=True)
def unseen_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)  # beartype, which looks on in tests, draws from it


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", [MLP, CNN, BN_CNN])
@pytest.mark.parametrize("name", LOSSES)
def test_the_weights_of_every_network_alone(name: str, kind: str, device: str) -> None:
    given, data, loss = networks(kind, 3), samples(), LOSSES[name]
    setting: dict[str, Any] = {"optimizer": SGD(lr=0.05, momentum=0.5), "steps": 5, "batch_size": 8}
    done = population.fit(given, data, loss=loss, seeds=[3, 4, 5], chunk=3, device=device, **setting)
    for k, network in enumerate(done.networks):
        own = loss[k] if isinstance(loss, list) else loss
        alone, _, value = train(given[k], data, loss=own, seed=3 + k, **setting)
        assert difference(network, alone) < 1e-8
        assert difference(network, given[k]) > 1e-3
        assert done.losses[k] == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("counts", [(4000, 9000), (4000, 10)])
def test_parts_of_batches_with_many_samples(counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_margin, "MIN_BATCH_SAMPLES", 2)
    given, data, each = networks(MLP, 2), samples(), [WideMargin(strength=50.0, samples=count) for count in counts]
    setting: dict[str, Any] = {"optimizer": SGD(lr=0.05), "steps": 5, "batch_size": 8}
    done = population.fit(given, data, loss=each, seeds=[3, 4], chunk=2, device="cpu", **setting)
    for k, network in enumerate(done.networks):
        assert difference(network, train(given[k], data, loss=each[k], seed=3 + k, **setting)[0]) < 1e-8


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", [MLP, BN_CNN])
@pytest.mark.parametrize("loss", [WideMargin(), WideMargin(share=0.5)])
def test_masks_of_dropout_are_those_of_a_network_alone(loss: WideMargin, kind: str, device: str) -> None:
    """Trained three at once, one after the other, or with a loss that is called network by network."""
    given, data = networks(kind, 3, dropout=0.5), samples()
    setting: dict[str, Any] = {"optimizer": AdamW(lr=0.01), "steps": 5, "batch_size": 10, "device": device}
    at_once = population.fit(given, data, loss=loss, chunk=3, **setting)
    for other in (
        population.fit(given, data, loss=loss, chunk=1, **setting),
        population.fit(given, data, loss=Wrapped(loss), chunk=3, **setting),
    ):
        assert max(difference(a, b) for a, b in zip(at_once.networks, other.networks)) < 1e-8
    assert difference(at_once.networks[0], at_once.networks[1]) > 1e-3


class Wrapped(losses.Wrapper):
    def __init__(self, loss: losses.Loss) -> None:
        self.loss = loss


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("name", ["default", "strengths", "share", "every"])
def test_a_cuda_graph_of_a_population(name: str, dropout: float) -> None:
    given, data = networks(BN_CNN, 3, dropout=dropout), samples()
    setting: dict[str, Any] = {"loss": LOSSES[name], "optimizer": AdamW(lr=0.01), "steps": 10, "batch_size": None}
    found = [population.fit(given, data, chunk=3, device="cuda", cuda_graph=use, **setting) for use in (True, False)]
    assert found[0].no_cuda_graph is None
    assert max(difference(a, b) for a, b in zip(found[0].networks, found[1].networks)) < 1e-8
