"""Networks as steps: values, branches that the scores do not need, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from geometry.networks import GRAPHS, as_chain, build, double
from widemargin import models
from widemargin.layers.forms import RootMeanSquare, Sum, Unread
from widemargin.layers.network import PIECEWISE, read


@pytest.mark.parametrize("name", GRAPHS)
def test_the_steps_give_the_networks_scores(name: str) -> None:
    model, x = build(name)
    network = read(model, x)
    network.require(*PIECEWISE, Sum, RootMeanSquare)
    torch.testing.assert_close(network.forward(x.double()), double(model)(x.double()), rtol=1e-10, atol=1e-11)


def test_a_residual_network_is_the_chain_with_the_same_function() -> None:
    model, x = build("residual")
    torch.testing.assert_close(as_chain(model)(x), model(x))  # type: ignore[arg-type]


def test_a_spectral_norm_in_training_mode_is_read_without_a_step_of_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(6, 8)), nn.ReLU(), spectral_norm(nn.Linear(8, 3)).eval())
    model[0].train()
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    assert before
    x = torch.randn(2, 6)
    network = read(model, x)
    assert [module.training for module in model.modules()] == modes
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    torch.testing.assert_close(network.forward(x.double()).float(), model.eval()(x))


class Sides(nn.Module):
    """A branch that the scores do not need, and a module of one's own without children."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.own, self.last = nn.Linear(4, 4), Own(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.first(x)
        return self.last(self.own(h)), h.softmax(dim=1)


class Own(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(x)


def test_only_what_the_scores_depend_on_counts() -> None:
    network = read(Sides(), torch.randn(3, 4))
    assert network.names == ("first", "own.relu", "own.add", "last")
    assert network.inputs == ((-1,), (0,), (0, 1), (2,))


def test_a_module_of_ones_own_that_is_not_known_is_one_layer() -> None:
    class Squared(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * x).relu()

    network = read(nn.Sequential(nn.Linear(4, 4), Squared(), nn.Linear(4, 2)), torch.randn(3, 4))
    assert network.names == ("0", "1", "2")
    assert isinstance(network.steps[1], Unread)


def test_attention_is_named_as_the_reason() -> None:
    network = read(models.vit(size=8, width=8, heads=2, layers=1), torch.randn(2, 3, 8, 8))
    with pytest.raises(TypeError, match=r"also not supported: .*matmul, softmax.* \(attention\)"):
        network.require(*PIECEWISE, Sum, RootMeanSquare)


def test_a_hidden_dependence_on_the_data_is_noticed() -> None:
    class Leaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            with torch._C.DisableTorchFunction():
                hidden = x[0].exp()
            return self.last(x + hidden)

    with pytest.raises(TypeError, match="model gives other scores"):
        read(Leaks(), torch.randn(3, 4))
