"""sokolic (21) against explicit matrices, and how it grows with depth."""

from __future__ import annotations

import math

import pytest
from torch import nn

from bounds.cases import Twice, cnn, matrices, mlp, samples
from oracles_bounds import frobenius, matrix_of
from widemargin import bounds


@pytest.mark.parametrize("activation", [nn.ReLU, Twice])
def test_it_is_the_product_of_frobenius_norms(activation: type[nn.Module]) -> None:
    model, x = mlp(4, 5, 6, 1, activation=activation), samples(9, 4)
    first, second, v = (frobenius(matrix) for matrix in matrices(model))
    factor = 2.0 if activation is Twice else 1.0
    found = bounds.neyshabur(model, x)
    assert found.value == pytest.approx(2**2 * v * first * second * factor / 3)
    assert found.depth == 2


def test_convolutions_are_operators() -> None:
    model, x = cnn(), samples(4, 2, 6, 6)
    shapes = {"0": (2, 6, 6), "3": (3, 3, 3), "6": (16,), "8": (5,)}
    sizes = [frobenius(matrix_of(model.get_submodule(name), shape)) for name, shape in shapes.items()]
    assert bounds.neyshabur(model, x).value == pytest.approx(2**3 * math.prod(sizes) / 2)


def test_a_layer_of_norm_one_doubles_it() -> None:
    x = samples(4, 3)
    values = []
    for depth in (1, 2, 3):
        model = mlp(*[3] * depth, 1)
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight.data /= layer.weight.data.norm()
        values.append(bounds.neyshabur(model, x).value)
    assert values == pytest.approx([0.5, 1.0, 2.0])


def test_inputs_outside_the_unit_ball_and_biases_are_told() -> None:
    x = samples(4, 3)
    assert [a.holds for a in bounds.neyshabur(mlp(3, 2, bias=True), x, biases="ignore").assumptions] == [False, False]
    assert bounds.neyshabur(mlp(3, 2), x / 100).broken == ()
    found = bounds.neyshabur(mlp(3, 2), x)
    assert found.terms["max ‖x‖_2"] == pytest.approx(float(x.norm(dim=1).max()))
    with pytest.raises(ValueError, match="layer '0' has a bias"):
        bounds.neyshabur(mlp(3, 2, bias=True), x)
