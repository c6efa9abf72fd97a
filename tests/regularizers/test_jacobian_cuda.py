"""Regularizers of the Jacobian in CUDA graphs are what they are without; skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin._cuda import graphs
from widemargin.losses import CrossEntropy
from widemargin.regularizers import Jacobian, JacobianFrobenius
from widemargin.training import SGD, Devices, fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("second_order", ["exact", "second-point"])
@pytest.mark.parametrize("kind", [Jacobian, JacobianFrobenius])
def test_fit_is_the_same_with_a_cuda_graph(
    kind: type[Jacobian | JacobianFrobenius], second_order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directions of a step are those of its seed, also in a replay."""
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)  # beartype, which looks on in tests, draws from it
    torch.manual_seed(0)
    x, y = torch.randn(100, 1, 8, 8), torch.randint(3, (100,))
    found = []
    for use in (False, True):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
        done = fit(
            network,
            (x, y),
            loss=CrossEntropy(),
            regularizers=[kind(weight=0.5, second_order=second_order)],  # type: ignore[arg-type]
            optimizer=SGD(lr=0.05, momentum=0.9),
            epochs=4,
            batch_size=16,
            devices=Devices(accelerator="cuda", cuda_graph=use),
        )
        assert done.settings["CUDA graph"] == ("yes" if use else "no, since cuda_graph is False")
        found.append({name: value.cpu() for name, value in network.state_dict().items()})
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)
