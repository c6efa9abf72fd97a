"""Steps of `fit` that a CUDA graph replays are the same steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from widemargin import losses, regularizers
from widemargin._cuda import graphs
from widemargin.training import SGD, Devices, TrainingStopped, fit
from widemargin.training.batches import Replica, Source, source
from widemargin.training.config import FitConfig
from widemargin.training.turns import why_no_cuda_graph

CUDA = Devices(accelerator="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("second_order", ["exact", "second-point"])
@pytest.mark.parametrize("has_regularizer", [False, True])
@pytest.mark.parametrize("cross_entropy", [0.0, 1.0])
def test_fit_on_a_gpu_is_the_same_with_a_graph(
    second_order: Any, has_regularizer: bool, cross_entropy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, a last batch of another shape, and BatchNorm's running statistics."""
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)
    torch.manual_seed(0)
    x, y = torch.randn(100, 1, 8, 8), torch.randint(3, (100,))
    in_gradient: Any = second_order if second_order == "second-point" else False
    loss = losses.MarginLoss(at=("input", "2"), cross_entropy=cross_entropy, second_order=in_gradient)
    regularizer = regularizers.Jacobian(weight=0.01, form="sum", second_order=second_order)
    found = []
    for use in (False, True):
        torch.manual_seed(1)
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 3)
        )
        done = fit(
            network,
            (x, y),
            loss=loss,
            regularizers=[regularizer] if has_regularizer else [],
            optimizer=SGD(lr=0.05, momentum=0.9),
            epochs=4,
            batch_size=16,
            devices=Devices(accelerator="cuda", cuda_graph=use),
        )
        assert done.settings["CUDA graph"] == ("yes" if use else "no, since cuda_graph is False")
        found.append({name: value.cpu() for name, value in network.state_dict().items()})
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_graph_still_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)
    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.randint(3, (64,))
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    loss = losses.MarginLoss(at=("input",))
    with pytest.raises(TrainingStopped, match=r"is not finite|are not finite"):
        fit(
            network,
            (x, y),
            loss=loss,
            optimizer=SGD(lr=1e30),
            epochs=8,
            batch_size=8,
            devices=Devices(accelerator="cuda"),
        )
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    bad = y.clone()
    bad[-1] = 3
    with pytest.raises(ValueError, match=r"3 at index|y has 3"):
        fit(
            network,
            (x, bad),
            loss=loss,
            optimizer=SGD(lr=0.1),
            epochs=8,
            batch_size=8,
            devices=Devices(accelerator="cuda"),
        )


def test_why_fit_records_nothing() -> None:
    """One sentence each, also where there is no GPU."""
    x, y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
    replica = Replica(device=torch.device("cpu"), dtype=None)
    samples = source((x, y), batch_size=2, seed=0, replica=replica)
    loader = source(DataLoader(TensorDataset(x, y)), batch_size=2, seed=0, replica=replica)
    loss = losses.MarginLoss()

    def reason(given: Source = samples, **settings: Any) -> str | None:
        config = object.__new__(FitConfig)  # of which only these are read
        vars(config).update({"devices": Devices(), "loss": loss, "regularizers": (), **settings})
        return why_no_cuda_graph(config, given, replica)

    assert "graphs need CUDA" in str(reason())
    assert reason(devices=Devices(cuda_graph=False)) == "cuda_graph is False"
    assert "not tensors" in str(reason(loader))
    assert "not capturable" in str(reason(loss=lambda *_: x))
    assert "not capturable" in str(reason(regularizers=(lambda *_: x,)))
