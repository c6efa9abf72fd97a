"""The chain of layers: operators as explicit matrices, Lipschitz constants by search, and what is refused."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from bounds.cases import Twice, cnn, mlp, samples
from oracles_bounds import frobenius, matrix_of, two_one
from widemargin import bounds
from widemargin.bounds.chain import chain_of
from widemargin.models import farhang_mlp


@pytest.mark.parametrize("bias", [False, True])
def test_norms_are_those_of_the_matrices(bias: bool) -> None:
    chain = chain_of(cnn(bias=bias), samples(4, 2, 6, 6), biases="ignore")
    assert [link.name for link in chain.weights] == ["0", "3", "6", "8"]
    for link in chain.weights:
        matrix = matrix_of(link.module, link.shape)
        norm = float(torch.linalg.svdvals(matrix)[0])
        assert norm <= link.lipschitz <= norm * (1 + 2e-6)
        assert link.norm == pytest.approx(norm, rel=1e-9)
        assert link.frobenius == pytest.approx(frobenius(matrix), rel=1e-12)
        assert float(link.rows(link.weight).sum()) == pytest.approx(two_one(matrix), rel=1e-12)
        assert link.units == len(matrix)


def test_a_spectral_norm_in_training_mode_is_read_without_a_step_of_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)).double()
    before, x, y = copy.deepcopy(model.state_dict()), samples(4, 6), torch.tensor([0, 1, 2, 0])
    bounds.spectral(model, x, y, margin=1.0, biases="ignore", reference=model)
    bounds.input_margin(model, x, y, directions=1, steps=2)
    first = chain_of(model, x, biases="ignore").weights[0]
    assert first.norm == pytest.approx(first.lipschitz)
    assert first.frobenius >= first.norm
    assert all(module.training for module in model.modules())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_linear_layer_on_sequences_has_a_row_a_position() -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Flatten(), nn.Linear(20, 2, bias=False)).double()
    first, _ = chain_of(model, samples(2, 5, 3)).weights
    assert first.frobenius == pytest.approx(frobenius(matrix_of(first.module, (5, 3))))


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (nn.MaxPool2d(2), 1.0),
        (nn.MaxPool2d(3, stride=1, padding=1), 3.0),
        (nn.MaxPool2d(3, stride=2), 2.0),
        (nn.MaxPool2d((3, 2), stride=(2, 2)), math.sqrt(2)),
        (nn.MaxPool2d(2, stride=1, dilation=2), 2.0),
        (nn.MaxPool2d(2, stride=2, dilation=2), 2.0),
        (nn.AvgPool2d(2), 0.5),
        (nn.AvgPool2d(3, stride=1), 1.0),
        (nn.AdaptiveAvgPool2d(1), 1 / 6),
        (nn.LeakyReLU(0.1), 1.0),
        (nn.LeakyReLU(-3.0), 3.0),
        (nn.Dropout(0.5), 1.0),
        (Twice(), math.sqrt(2)),
    ],
    ids=repr,
)
def test_a_layer_between_has_its_lipschitz_constant(pool: nn.Module, expected: float) -> None:
    model = cnn(pool=pool) if not isinstance(pool, nn.AdaptiveAvgPool2d) else with_pool(pool)
    x = samples(4, 2, 6, 6)
    constant = chain_of(model, x).links[2].lipschitz
    assert constant == pytest.approx(expected)
    pool.eval()
    a = samples(2000, 1, 6, 6, seed=2)
    b = a + 1e-6 * samples(2000, 1, 6, 6, seed=3) if not isinstance(pool, nn.MaxPool2d) else one_spike(a)
    stretched = (pool(a) - pool(b)).flatten(1).norm(dim=1) / (a - b).flatten(1).norm(dim=1)
    assert float(stretched.max()) <= constant * (1 + 1e-9)
    if isinstance(pool, nn.MaxPool2d):  # one entry far above the others is the maximum of every window it lies in
        assert float(stretched.max()) == pytest.approx(constant)


def with_pool(pool: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.ReLU(), pool, nn.Flatten(), nn.Linear(3, 3, bias=False)
    ).double()


def one_spike(a: Tensor) -> Tensor:
    """`a` with one entry raised far above the others, a different one in each sample, from one already above them."""
    rows = torch.arange(len(a))
    position = rows % 36
    a.flatten(1)[rows, position] = 100.0
    b = a.clone()
    b.flatten(1)[rows, position] = 200.0
    return b


def test_batch_norm_is_its_largest_scale() -> None:
    norm = nn.BatchNorm1d(3).double()
    with torch.no_grad():
        norm.running_var.copy_(torch.tensor([4.0, 0.25, 1.0]))  # type: ignore[union-attr]
        norm.weight.copy_(torch.tensor([1.0, -3.0, 2.0]))
    model = nn.Sequential(nn.Linear(2, 3), norm, nn.ReLU(), nn.Linear(3, 2)).double()
    chain = chain_of(model, samples(2, 2), biases="ignore", batch_norm=True)
    assert chain.factor == pytest.approx(6.0, rel=1e-4)
    with pytest.raises(TypeError, match="layer '1' is a BatchNorm1d"):
        chain_of(model, samples(2, 2), biases="ignore")


def test_scaled_relus_carry_two_to_the_half_of_the_hidden_layers() -> None:
    for depth in (1, 2, 5):
        model = farhang_mlp(inputs=4, width=6, depth=depth, outputs=2)
        assert chain_of(model, samples(2, 4)).factor == pytest.approx(2 ** ((depth - 1) / 2))


def test_a_layer_that_runs_twice_counts_twice() -> None:
    shared = nn.Linear(3, 3, bias=False)
    model = nn.Sequential(shared, nn.ReLU(), nn.Sequential(shared, nn.ReLU()), nn.Linear(3, 2, bias=False)).double()
    assert [link.name for link in chain_of(model, samples(2, 3)).weights] == ["0", "2.0", "3"]


class Block(nn.Sequential):
    """Keeps the forward of `nn.Sequential`."""


class Doubled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_subclass_of_sequential_is_one_while_it_keeps_its_forward() -> None:
    body = nn.Linear(3, 3, bias=False), nn.ReLU()
    last = nn.Linear(3, 2, bias=False)
    assert [link.name for link in chain_of(Block(Block(*body), last).double(), samples(2, 3)).links] == [
        "0.0",
        "0.1",
        "1",
    ]
    doubled = chain_of(nn.Sequential(Doubled(*body), last).double(), samples(2, 3))
    assert [link.name for link in doubled.links] == ["0.0", "0.1", "0.mul", "1"]
    assert doubled.factor == 2.0


class Shifted(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - 1)


def test_a_constant_shift_is_a_bias() -> None:
    model = Shifted(nn.Linear(3, 2, bias=False)).double()
    with pytest.raises(TypeError, match="layer 'sub' is a Rescale"):
        chain_of(model, samples(2, 3))
    assert chain_of(model, samples(2, 3), batch_norm=True).factor == 1.0


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (Residual(), "layer '0.body.add' takes 2 inputs"),
        (nn.GELU(), "layer '0.body' is a GELU"),
        (nn.LayerNorm(3), "layer '0.body' is a LayerNorm"),
        (nn.Linear(3, 3), "layer '0.body' has a bias"),
    ],
    ids=["residual", "gelu", "layer norm", "bias"],
)
def test_an_unsupported_layer_is_named(layer: nn.Module, sentence: str) -> None:
    inner = nn.Sequential()
    inner.add_module("body", layer)
    with pytest.raises((TypeError, ValueError), match=sentence):
        chain_of(nn.Sequential(inner, nn.Linear(3, 2, bias=False)).double(), samples(2, 3))


@pytest.mark.usefixtures("untyped")
def test_other_bad_input_is_told() -> None:
    circular = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False)).double()
    with pytest.raises(TypeError, match="layer '0' has padding_mode 'circular'"):
        chain_of(circular, samples(2, 2, 6, 6))
    with pytest.raises(ValueError, match="the network ends in a ReLU"):
        chain_of(mlp(3, 4).append(nn.ReLU()), samples(2, 3))
    with pytest.raises(ValueError, match="the network has no layers"):
        chain_of(nn.Sequential(), samples(2, 3))
    with pytest.raises(ValueError, match=r"x has shape \[0, 3\]"):
        chain_of(mlp(3, 4), samples(0, 3))
    with pytest.raises(ValueError, match="biases is 'maybe'"):
        chain_of(mlp(3, 4), samples(2, 3), biases="maybe")  # type: ignore[arg-type]
    zero = mlp(3, 4)
    nn.init.zeros_(zero[0].weight)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"layer '0' has a weight of norm 0\.0"):
        chain_of(zero, samples(2, 3))


def test_the_network_is_left_as_it_was() -> None:
    model = cnn().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    chain_of(model, samples(2, 2, 6, 6))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
