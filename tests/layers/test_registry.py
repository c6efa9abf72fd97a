from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from widemargin import layers


class Plain(nn.Linear):
    """Keeps its parent's forward."""


class Scaled(nn.ConvTranspose2d):
    """Has a forward of its own, and the weight of its parent."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return 2 * super().forward(x, output_size)


class Twice(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Own(nn.Module):
    """An activation that states its slopes and its Lipschitz constant."""

    slopes, lipschitz = (0.25, 2.0), 2.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, 2.0 * x, 0.25 * x)


@pytest.fixture
def kind() -> Iterator[type[nn.Module]]:
    """A layer type that is in the registry during one test."""

    class Fresh(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    yield Fresh
    for capability in layers.CAPABILITIES:
        layers.lookup(capability).pop(Fresh, None)


def test_a_subclass_has_the_rules_of_its_parent_while_it_keeps_its_forward() -> None:
    assert layers.rule("affine", Plain(2, 3)) is layers.rule("affine", nn.Linear(2, 3)) is not None
    assert layers.rule("affine", Twice(2, 3)) is None
    assert layers.rule("row_axis", Scaled(2, 4, 3, groups=2)) is layers.rule("row_axis", nn.ConvTranspose2d(2, 4, 3))
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    assert layers.rule("affine", parametrized) is layers.rule("affine", nn.Linear(2, 3))


def test_a_module_may_state_its_own_slopes_and_constant() -> None:
    x = torch.zeros(1, 3)
    pieces, lipschitz = layers.rule("pieces", Own()), layers.rule("lipschitz", Own())
    assert pieces is not None
    assert lipschitz is not None
    assert pieces(Own(), x) == layers.Slopes(negative=0.25, positive=2.0)
    assert lipschitz(Own(), x) == 2.0


@pytest.mark.parametrize("slopes", [(1.0,), (0.0, float("nan")), 3.0])
def test_slopes_that_are_not_two_numbers_are_named(slopes: object) -> None:
    with pytest.raises(TypeError, match="slopes of Own"):
        layers.Slopes.of(slopes, "Own")


def test_a_registered_layer_is_known_at_once(kind: type[nn.Module]) -> None:
    module = kind()
    assert layers.rule("lipschitz", module) is None
    layers.register("lipschitz", kind)(lambda _, __: 1.0)
    rule = layers.rule("lipschitz", module)
    assert rule is not None
    assert rule(module, torch.zeros(1, 2)) == 1.0
    assert layers.table()["Fresh"] == ("lipschitz",)
    layers.register("lipschitz", kind)(lambda _, __: 3.0)
    replaced = layers.rule("lipschitz", module)
    assert replaced is not None
    assert replaced(module, torch.zeros(1, 2)) == 3.0


def test_functions_and_nodes_are_looked_up_by_their_key() -> None:
    assert nn.functional.linear in layers.lookup("jvp")
    assert "ConvolutionBackward0" in layers.lookup("weight_gradient")
    assert layers.lookup("jvp").get(torch.sin) is None


@pytest.mark.usefixtures("untyped")
def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="capability is 'lipshitz'"):
        layers.register("lipshitz", nn.ReLU)
    with pytest.raises(TypeError, match="key is 3"):
        layers.register("lipschitz", 3)  # type: ignore[arg-type]
