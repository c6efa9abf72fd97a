"""Bartlett's bound against explicit matrices, closed forms and its homogeneity."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from bounds.cases import Twice, cnn, matrices, mlp, samples
from oracles_bounds import matrix_of, spectral_complexity
from widemargin import bounds
from widemargin.margins import normalized, output

LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def test_a_network_of_identities_has_the_closed_form() -> None:
    model = mlp(3, 3, 3)
    for layer in (model[0], model[2]):
        nn.init.eye_(layer.weight)  # type: ignore[arg-type]
    x = torch.eye(3, dtype=torch.float64)
    found = bounds.spectral(model, x, torch.tensor([0, 1, 2]), margin=2.0)
    # R = (2·3^{2/3})^{3/2} = 2^{3/2}·3; all margins are 1, the ramp loss at γ = 2 is a half; ‖X‖_F = √3, n = 3.
    assert found.complexity == pytest.approx(3 * 2**1.5)
    assert found.ramp_loss == pytest.approx(0.5)
    assert found.value == pytest.approx(0.5 + math.sqrt(3) * 3 * 2**1.5 / (2 * 3))
    assert bounds.spectral(model, x, torch.tensor([0, 1, 2]), margin=0.5, reference="identity").value == 0.0


@pytest.mark.parametrize("reference", [None, "identity", "network"])
def test_a_cnn_is_its_matrices(reference: str | None) -> None:
    model, x = cnn(), samples(6, 2, 6, 6)
    other = cnn(seed=5)
    chosen = other if reference == "network" else reference
    found = bounds.spectral(model, x, LABELS, margin=0.3, reference=chosen, batch_size=4)  # type: ignore[arg-type]
    shapes = {"0": (2, 6, 6), "3": (3, 3, 3), "6": (16,), "8": (5,)}
    assert set(shapes) == {layer.name for layer in found.layers}
    ours, theirs = [], []
    for name, shape in shapes.items():
        layer = model.get_submodule(name)
        ours.append(matrix_of(layer, shape))
        centre = {
            "network": other.get_submodule(name),
            "identity": identity(layer),
            None: zero(layer),
        }[reference]
        theirs.append(matrix_of(centre, shape))
    expected = spectral_complexity(ours, theirs, 1.0)
    assert found.complexity == pytest.approx(expected, rel=1e-5)  # norms of convolutions are upper bounds
    assert found.complexity >= expected
    with torch.no_grad():
        margins = output(model(x), LABELS)
    ramp = sum(min(1.0, max(0.0, 1 - float(m) / 0.3)) for m in margins) / 6
    assert found.value == pytest.approx(ramp + float(x.norm()) * expected / (0.3 * 6), rel=1e-5)


def identity(layer: nn.Module) -> nn.Module:
    made = zero(layer)
    weight = made.weight
    assert isinstance(weight, Tensor)
    middle = [size // 2 for size in weight.shape[2:]]
    for k in range(min(weight.shape[:2])):
        weight.data[k, k, *middle] = 1.0
    return made


def zero(layer: nn.Module) -> nn.Module:
    made = copy.deepcopy(layer)
    nn.init.zeros_(made.weight)  # type: ignore[arg-type]
    return made


def test_with_kernels_it_is_the_complexity_of_normalized_margins() -> None:
    model, x = cnn(), samples(6, 2, 6, 6)
    kernel = bounds.spectral(model, x, LABELS, margin=1.0, convolutions="kernel", reference=cnn(seed=5))
    expected = normalized.spectral_complexity(model, x, reference=cnn(seed=5))
    assert kernel.complexity == pytest.approx(expected, rel=1e-5)
    assert kernel.complexity < bounds.spectral(model, x, LABELS, margin=1.0, reference=cnn(seed=5)).complexity


def test_scaled_relus_multiply_it_by_the_root_of_two_a_layer() -> None:
    x, y = samples(6, 4), LABELS
    plain = bounds.spectral(mlp(4, 5, 6, 3), x, y, margin=1.0)
    scaled = bounds.spectral(mlp(4, 5, 6, 3, activation=Twice), x, y, margin=1.0)
    assert scaled.complexity == pytest.approx(2 * plain.complexity)  # 2^{(L−1)/2}, L = 3
    assert scaled.lipschitz_factor == pytest.approx(2.0)


def test_scaling_a_layer_scales_complexity_and_margins_alike() -> None:
    x, model = samples(6, 4), mlp(4, 5, 6, 3)
    before = bounds.spectral(model, x, LABELS, margin=0.1)
    with torch.no_grad():
        next(model[2].parameters()).mul_(3.0)
    after = bounds.spectral(model, x, LABELS, margin=0.3)
    assert after.complexity == pytest.approx(3 * before.complexity)
    assert after.value == pytest.approx(before.value)


def test_binary_labels_and_large_inputs() -> None:
    model, x = mlp(4, 5, 1), samples(6, 4)
    y = torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    found = bounds.spectral(model, x, y, margin=0.1)
    doubled = bounds.spectral(model, 2 * x, y, margin=0.2)
    assert doubled.value == pytest.approx(found.value)
    assert len(matrices(model)) == len(found.layers)


def test_assumptions_and_terms_are_told() -> None:
    model, x = mlp(4, 5, 3, bias=True), samples(6, 4)
    found = bounds.spectral(model, x, LABELS, margin=1.0, biases="ignore", reference=mlp(4, 5, 3))
    assert [a.holds for a in found.assumptions] == [False, None]
    assert [a.text for a in found.broken] == ["the network has no biases"]
    assert "constant 1" in str(found)
    assert "DOES NOT HOLD (2 layers have one)" in str(found)
    assert found.vacuous == (found.value >= 1)
    assert {"R̂_γ", "R_w", "‖W−M‖_2,1 at 0", "n"} <= found.terms.keys()


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("margin", [0, -1.0, math.inf, math.nan, True])
def test_a_bad_margin_is_told(margin: float) -> None:
    with pytest.raises((TypeError, ValueError), match="margin is"):
        bounds.spectral(mlp(4, 3), samples(6, 4), LABELS, margin=margin)


@pytest.mark.usefixtures("untyped")
def test_other_bad_arguments_are_told() -> None:
    def call(**options: object) -> bounds.SpectralBound:
        return bounds.spectral(mlp(4, 3), samples(6, 4), LABELS, margin=1.0, **options)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="reference is 'zero'"):
        call(reference="zero")
    with pytest.raises(ValueError, match=r"reference has no weight of shape \[3, 4\] at '0'"):
        call(reference=mlp(4, 5, 3))
    with pytest.raises(ValueError, match="batch_size is 0"):
        call(batch_size=0)
    with pytest.raises(ValueError, match="convolutions is 'matrix'"):
        call(convolutions="matrix")
    with pytest.raises(ValueError, match="layer '0' has a bias"):
        bounds.spectral(mlp(4, 3, bias=True), samples(6, 4), LABELS, margin=1.0)
