from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import oracles
import zoo
from widemargin import models
from widemargin.margins import normalized

Case = tuple[nn.Module, Tensor, Tensor]


def mlp(seed: int = 0, outputs: int = 3) -> Case:
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(5, 7, bias=False),
        nn.ReLU(),
        nn.Linear(7, 6, bias=False),
        nn.ReLU(),
        nn.Linear(6, outputs, bias=False),
    ).double()
    y = torch.tensor([0, 2, 1, 0]) if outputs > 1 else torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    return network, torch.randn(4, 5, dtype=torch.float64), y


def cnn(**settings: Any) -> Case:
    """A convolution of the given settings between two others, a pool, and a linear layer."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 4, bias=False, **settings),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3, bias=False),
    ).double()
    return network, torch.randn(4, 2, 6, 6, dtype=torch.float64), torch.tensor([0, 2, 1, 0])


CASES: dict[str, Case] = {
    "mlp": mlp(),
    "binary mlp": mlp(outputs=1),
    "padding": cnn(kernel_size=3, padding=1),
    "stride": cnn(kernel_size=3, stride=2, padding=1),
    "dilation": cnn(kernel_size=2, dilation=2, padding=(0, 2)),
    "groups": cnn(kernel_size=3, groups=2),
    "farhang-mlp": (
        models.build("farhang-mlp", inputs=9, width=12, depth=4, outputs=4).double(),
        torch.randn(4, 9, dtype=torch.float64),
        torch.tensor([0, 3, 1, 2]),
    ),
    "1-D": (
        nn.Sequential(
            nn.Conv1d(2, 3, 3, stride=2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(9, 2, bias=False)
        ).double(),
        torch.randn(3, 2, 7, dtype=torch.float64),
        torch.tensor([0, 1, 1]),
    ),
}
cases = pytest.mark.parametrize("name", CASES)


# ------------------------------------------------------------------------------------------- the definitions of farhang


@cases
def test_frobenius(name: str) -> None:
    network, x, y = CASES[name]
    expected = oracles.normalized_frobenius(network, x, y)
    torch.testing.assert_close(normalized.frobenius(network, x, y).tolist(), expected, rtol=1e-12, atol=0)


def test_frobenius_by_hand() -> None:
    """W = (1 2; 3 4), x = (1, 1): γ = 7 − 3 = 4, ‖W‖_F = √30, d_1 = d_0 = 2, ‖x‖ = √2."""
    network = nn.Linear(2, 2, bias=False)
    nn.init.constant_(network.weight, 0)
    network.weight.data += torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    margin = normalized.frobenius(network, torch.ones(1, 2), torch.tensor([1])).item()
    assert margin == pytest.approx(4 * math.sqrt(2 / 30) * math.sqrt(2) / math.sqrt(2), rel=1e-5)


@cases
@pytest.mark.parametrize("inputs", ["each", "joint"])
@pytest.mark.parametrize("with_reference", [False, True])
def test_spectral(name: str, inputs: Any, with_reference: bool) -> None:
    network, x, y = CASES[name]
    reference = None
    if with_reference:
        reference = copy.deepcopy(network)
        for weight in reference.parameters():
            weight.data += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)).to(weight)
    expected = oracles.normalized_spectral(network, x, y, reference=reference, inputs=inputs)
    result = normalized.spectral(network, x, y, reference=reference, inputs=inputs)
    torch.testing.assert_close(result.tolist(), expected, rtol=1e-9, atol=0)
    complexity = normalized.spectral_complexity(network, x, reference=reference)
    assert complexity == pytest.approx(oracles.spectral_complexity(network, x, reference), rel=1e-9)


@cases
def test_operator_norms(name: str) -> None:
    network, x, _ = CASES[name]
    expected = oracles.operator_norms(network, x)
    assert normalized.operator_norms(network, x) == {key: pytest.approx(v, rel=1e-9) for key, v in expected.items()}


def test_the_norm_of_a_convolution_depends_on_the_size_it_meets() -> None:
    network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(0))
    nn.init.ones_(next(network.parameters()))
    small, large = (normalized.operator_norms(network, torch.ones(1, 1, n, n))["0"] for n in (3, 20))
    assert small == pytest.approx((1 + math.sqrt(2)) ** 2, rel=1e-5)  # the eigenvalue of the tridiagonal ones, squared
    assert 8.5 < large < 9


@pytest.mark.parametrize("entry", [e for e in zoo.ZOO if "bias-free" in e.traits], ids=str)
def test_the_bias_free_networks_of_the_zoo(entry: zoo.Entry) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels()
    torch.testing.assert_close(
        normalized.frobenius(network, x, y).tolist(), oracles.normalized_frobenius(network, x, y), rtol=1e-10, atol=0
    )
    torch.testing.assert_close(
        normalized.spectral(network, x, y).tolist(), oracles.normalized_spectral(network, x, y), rtol=1e-8, atol=0
    )


def test_an_answer_with_logits() -> None:
    entry = zoo.LOGITS[0]
    network, x, y = entry.network(), entry.inputs(), entry.labels()
    result = normalized.frobenius(network, x, y, biases="ignore")
    scores = network(x).logits.detach()
    factor = math.prod(
        math.sqrt(len(w)) / oracles.frobenius(w.detach()) for name, w in network.named_parameters() if "weight" in name
    )
    expected = torch.tensor(oracles.output(scores, y)) * factor * math.sqrt(6) / x.norm(dim=1)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=0)


# ------------------------------------------------------------------------------------------------------ homogeneity


@given(st.sampled_from(sorted(CASES)), st.integers(0, 2), st.floats(1e-2, 1e2), st.floats(1e-2, 1e2))
@settings(max_examples=10)
def test_the_scale_of_layers_and_inputs_does_not_matter(name: str, layer: int, scale: float, gain: float) -> None:
    network, x, y = CASES[name]
    scaled = copy.deepcopy(network)
    weights = list(scaled.parameters())
    with torch.no_grad():
        weights[layer % len(weights)].mul_(scale)
    for function in (normalized.frobenius, normalized.spectral):
        torch.testing.assert_close(function(scaled, x * gain, y), function(network, x, y), rtol=1e-8, atol=0)
    joint = normalized.spectral(network, x, y, inputs="joint")
    torch.testing.assert_close(normalized.spectral(scaled, x * gain, y, inputs="joint"), joint, rtol=1e-8, atol=0)


def test_the_first_input_alone_decides_the_shape() -> None:
    network, x, y = CASES["stride"]
    torch.testing.assert_close(normalized.spectral(network, x, y)[1:], normalized.spectral(network, x[1:], y[1:]))


def test_the_network_is_left_as_it_was() -> None:
    network, x, y = CASES["padding"]
    network.train()
    normalized.spectral(network, x, y)
    normalized.frobenius(network, x, y)
    assert all(module.training for module in network.modules())
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


# --------------------------------------------------------------------------------------------------------- sentences


def with_layer(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4, bias=False), layer, nn.Linear(4, 3, bias=False))


X, Y = torch.ones(2, 4), torch.tensor([0, 2])


@pytest.mark.parametrize("function", [normalized.frobenius, normalized.spectral])
@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm1d(4, affine=False),
        nn.BatchNorm1d(4, affine=False, track_running_stats=False),
        nn.LayerNorm(4),
        nn.LayerNorm(4, elementwise_affine=False),
        nn.GroupNorm(2, 4, affine=False),
        nn.RMSNorm(4),
        nn.InstanceNorm1d(4),
        nn.PReLU(),
        nn.Bilinear(4, 4, 4, bias=False),
    ],
    ids=repr,
)
def test_a_layer_without_a_norm_is_named(function: Any, layer: nn.Module) -> None:
    with pytest.raises(TypeError, match=rf"^layer '1' is a {type(layer).__name__}"):
        function(with_layer(layer), X, Y)


@pytest.mark.parametrize("function", [normalized.frobenius, normalized.spectral])
def test_an_embedding_has_no_norm(function: Any) -> None:
    entry = zoo.TOKENS[1]
    with pytest.raises(TypeError, match=r"^layer 'embedding' is a Embedding"):
        function(entry.network(), entry.inputs(), entry.labels())


def test_a_parameter_of_the_network_itself_has_no_norm() -> None:
    entry = next(e for e in zoo.ZOO if e.name == "vision transformer")
    with pytest.raises(TypeError, match=r"^layer '' is a VisionTransformer"):
        normalized.frobenius(entry.network(), entry.inputs(), entry.labels())


@pytest.mark.parametrize("function", [normalized.frobenius, normalized.spectral])
def test_biases_are_refused_or_ignored(function: Any) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3, bias=False))
    with pytest.raises(ValueError, match=r"^layer '0' has a bias, .* or pass biases='ignore'$"):
        function(network, X, Y)
    without = copy.deepcopy(network)
    assert isinstance(without[0], nn.Linear)
    without[0].register_parameter("bias", None)
    ratio = function(network, X, Y, biases="ignore") / function(without, X, Y)
    margin = oracles.output(network(X).detach(), Y)[0] / oracles.output(without(X).detach(), Y)[0]
    assert ratio[0].item() == pytest.approx(margin, rel=1e-5)  # in the margin, not in the norm


@pytest.mark.parametrize("function", [normalized.frobenius, normalized.spectral])
@pytest.mark.usefixtures("untyped")
def test_other_bad_arguments(function: Any) -> None:
    network = with_layer(nn.ReLU())
    with pytest.raises(ValueError, match=r"^x has an all-zero input at index 1"):
        function(network, torch.tensor([[1.0] * 4, [0.0] * 4]), Y)
    with pytest.raises(ValueError, match=r"^biases is 'drop'"):
        function(network, X, Y, biases="drop")
    with pytest.raises(ValueError, match=r"^Sequential has no layer with weights"):
        function(nn.Sequential(nn.ReLU()), X, Y)
    with pytest.raises(ValueError, match=r"^y has 7 at index 1"):
        function(network, X, torch.tensor([0, 7]))
    dead = copy.deepcopy(network)
    nn.init.zeros_(next(dead.parameters()))
    with pytest.raises(ValueError, match=r"^layer '0' has a weight of norm 0\.0"):
        function(dead, X, Y)


@pytest.mark.usefixtures("untyped")
def test_bad_arguments_of_spectral() -> None:
    network = with_layer(nn.ReLU())
    with pytest.raises(ValueError, match=r"^inputs is 'all'"):
        normalized.spectral(network, X, Y, inputs="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^x has an all-zero input at index 0"):
        normalized.spectral(network, torch.zeros(2, 4), Y, inputs="joint")
    wider = nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    for reference in (wider, nn.Sequential(nn.Linear(4, 4, bias=False))):
        with pytest.raises(ValueError, match=r"^reference has no weight of shape \[\d, 4\] at '\d'"):
            normalized.spectral(network, X, Y, reference=reference)


@pytest.mark.parametrize("function", [normalized.frobenius, normalized.spectral])
def test_every_layer_runs_once(function: Any) -> None:
    class Shared(nn.Module):
        def __init__(self, times: int) -> None:
            super().__init__()
            self.times, self.shared, self.last = times, nn.Linear(4, 4, bias=False), nn.Linear(4, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(self.times):
                x = self.shared(x)
            scores: Tensor = self.last(x)
            return scores

    function(Shared(1), X, Y)
    with pytest.raises(ValueError, match=r"^layer 'shared' ran more than once"):
        function(Shared(2), X, Y)
    with pytest.raises(ValueError, match=r"^layer 'shared' was not reached by the forward pass"):
        function(Shared(0), X, Y)


# ---------------------------------------------------------------------------------------------------------- wrappers


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_and_wrapped() -> None:
    network, x, y = CASES["mlp"]
    expected = normalized.spectral(network, x, y)
    compiled: Any = torch.compile(network, backend="eager")
    compiled(x)
    # With a GPU, DataParallel moves the scores there.
    for wrapped in (compiled, *([] if torch.cuda.is_available() else [nn.DataParallel(network)])):
        torch.testing.assert_close(normalized.spectral(wrapped, x, y, reference=None), expected)
        torch.testing.assert_close(normalized.frobenius(wrapped, x, y), normalized.frobenius(network, x, y))


def test_under_autocast() -> None:
    """The norms are not touched by it; the scores are as the network gives them."""
    network, x, y = cnn(kernel_size=3, padding=1)
    network, x = network.float(), x.float()
    expected = normalized.spectral(network, x, y)
    norms = normalized.operator_norms(network, x)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(normalized.spectral(network, x, y), expected, rtol=0.1, atol=1e-3)
        assert normalized.operator_norms(network, x) == {key: pytest.approx(value) for key, value in norms.items()}


def test_inputs_are_cast_to_the_dtype_of_the_weights() -> None:
    network, x, y = mlp()
    single = x.float()
    torch.testing.assert_close(
        normalized.frobenius(network, single, y), normalized.frobenius(network, single.double(), y)
    )
