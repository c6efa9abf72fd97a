"""The reader of networks: containers that are followed, names, and the places where a network is not a chain."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widemargin import bounds, certify, geometry, layers, margins

X = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 0, 1])


class Mlp(nn.Sequential):
    """A subclass without a `forward` of its own."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(6, 5, bias=False), nn.Sequential(nn.ReLU()), nn.Linear(5, 2, bias=False)
        )


class Viewed(Mlp):
    """Changes the shape before the forward of its parent."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(len(x), 3, 2))


class Blocks(nn.Module):
    """Layers in a list, an activation that runs twice, and scores in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 5, bias=False), nn.Linear(5, 4, bias=False)])
        self.act, self.head = nn.ReLU(), nn.Linear(4, 2, bias=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = x.flatten(1)
        for block in self.blocks:
            h = self.act(block(h))
        return {"logits": self.head(h)}


class Transposed(Mlp):
    """Moves entries without a change of the storage or of the number of entries."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2))


class Square(nn.Sequential):
    """Moves entries without a change of the shape."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mT)


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.add, self.last = nn.Linear(3, 3), Two(), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.add(self.first(x), x))


def names(model: nn.Module, x: Tensor = X) -> list[str]:
    return [call.name for call in layers.read_chain(model, x)[0]]


@pytest.mark.parametrize("kind", [Mlp, Viewed])
def test_a_subclass_of_sequential_is_measured_as_the_layers_that_it_runs(kind: type[nn.Sequential]) -> None:
    torch.manual_seed(0)
    model = kind().double()
    plain = nn.Sequential(*([nn.Unflatten(1, (3, 2))] if kind is Viewed else []), *model)
    x = X.double() if kind is Mlp else X.double().flatten(1)
    assert names(model, x) == ["view"] * (kind is Viewed) + ["0", "1", "2.0", "3"]
    torch.testing.assert_close(geometry.jacobian(model, x), geometry.jacobian(plain, x))
    torch.testing.assert_close(certify.radius(model, x, Y).values, certify.radius(plain, x, Y).values)
    found, expected = (bounds.input_margin(network, x, Y, directions=0) for network in (model, plain))
    torch.testing.assert_close(found.spectral.values, expected.spectral.values)
    assert bounds.neyshabur(model, x).value == pytest.approx(bounds.neyshabur(plain, x).value)
    assert bounds.cushions(model, x).contraction == pytest.approx(bounds.cushions(plain, x).contraction)


def test_modules_of_ones_own_are_followed_and_layers_that_run_twice_have_two_names() -> None:
    assert names(Blocks()) == ["flatten", "blocks.0", "act", "blocks.1", "act#2", "head"]
    shared = nn.Linear(3, 3)
    assert names(nn.Sequential(shared, nn.Tanh(), nn.Sequential(shared))) == ["0", "1", "2.0"]
    x = X.double()
    assert len(bounds.cushions(Blocks().double(), x).layer) == 3
    initial = Blocks().double()
    assert bounds.spectral(initial, x, Y, margin=1.0, reference=initial).complexity == 0.0


def test_inference_mode_and_activations_in_place_change_nothing() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6, 2, bias=False)).double(), X.double()
    expected, normalized = bounds.neyshabur(model, x).value, margins.normalized.operator_norms(model, x.clone())
    torch.testing.assert_close(x, X.double(), rtol=0, atol=0)
    with torch.inference_mode():
        assert bounds.neyshabur(model, x.clone()).value == expected
        assert margins.normalized.operator_norms(model, x.clone()) == normalized


def test_a_parametrized_layer_is_one_layer() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.ReLU())
    assert [call.name for call in layers.read_chain(model, X, "affine")[0]] == ["0", "1"]


def test_axes_that_are_exchanged_are_layers() -> None:
    assert names(Transposed()) == ["transpose", "0", "1", "2.0", "3"]
    assert names(Square(nn.Flatten(), nn.Linear(9, 2)), torch.zeros(1, 3, 3)) == ["mT", "0", "1"]


def test_a_layer_that_returns_a_tuple_is_named() -> None:
    with pytest.raises(TypeError, match="layer '0' is LSTM"):
        geometry.pattern(nn.Sequential(nn.LSTM(3, 3, batch_first=True)), X)


class Python(nn.Module):
    """Python code that depends on the data, and changes in place of tensors that are used again."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.last, self.kind = nn.Linear(3, 3), nn.Linear(3, 2), kind
        self.kept = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.kind == "branch":
            h = h if h.sum() > 0 else -h
        elif self.kind == "number":
            h = h * float(h[0, 0])
        elif self.kind == "numpy":
            h = h + torch.as_tensor(h.detach().numpy())
        elif self.kind == "assigned":
            h[:, 0] = 0
        elif self.kind == "alias":
            flat = h.view(len(h), -1)
            h.relu_()
            h = flat
        elif self.kind == "batch":
            h = h - h.mean(dim=0)
        elif self.kind == "kept":
            self.kept[:] = h[0]
            h = h + self.kept
        return self.last(h)


@pytest.mark.parametrize(
    ("model", "x", "reason"),
    [
        (Sum(), X[:, 0], "layer 'add.add' takes 2 inputs"),
        (nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)), X, "layer '0' is BatchNorm1d"),
        (Python("branch"), X[:, 0], "model is a Python, which reads values of its data in Python .by bool"),
        (Python("number"), X[:, 0], "by float"),
        (Python("numpy"), X[:, 0], "by numpy"),
        (Python("assigned"), X[:, 0], "by setitem"),
        (Python("alias"), X[:, 0], "changes tensors in place"),
        (Python("batch"), X[:, 0], "layer 'mean' is the function mean"),
        (Python("kept"), X[:, 0], "by setitem"),
    ],
    ids=["sum", "batch statistics", "branch", "number", "numpy", "assigned", "alias", "batch", "kept"],
)
def test_a_network_that_is_not_a_chain_is_refused(model: nn.Module, x: Tensor, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        layers.read_chain(model, x)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
