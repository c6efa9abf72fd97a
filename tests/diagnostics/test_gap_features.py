"""Signatures of margin distributions: a linear network by hand, statistics, and what scaling does not change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.data import Samples
from widemargin.diagnostics.gap_features import (
    FEATURES,
    TotalVariation,
    four_places,
    margin_signature,
    statistics_of,
)


def network(depth: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(4, 4), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(4, 3))


def labelled(model: nn.Module, count: int = 60) -> Samples:
    """Samples with the labels that the network gives them, but every tenth."""
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))
    y = model(x).argmax(dim=1)
    return Samples(x, torch.where(torch.arange(count) % 10 == 0, (y + 1) % 3, y))


def test_a_linear_network_by_hand() -> None:
    model = nn.Linear(4, 2)
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    y = model(x).argmax(dim=1)
    found = margin_signature(model, (x, y), batch_size=30)
    normal = (model.weight[0] - model.weight[1]).detach().double().numpy()
    scores = model(x).detach().double().numpy()
    distances = np.abs(scores[:, 0] - scores[:, 1]) / np.linalg.norm(normal)
    points = x.double().numpy()
    variation = ((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()
    margins = np.sort(distances / np.sqrt(variation))
    low, middle, high = np.percentile(margins, [25, 50, 75])
    expected = [max(margins[0], low - 1.5 * (high - low)), low, middle, high]
    expected.append(min(margins[-1], high + 1.5 * (high - low)))
    np.testing.assert_allclose(found.values[0].exp().numpy(), expected, rtol=1e-4)
    assert found.places == ("input",) * 4
    assert found.accuracy == 1.0


def test_places_are_the_first_middle_and_last_layer_before_the_output() -> None:
    assert four_places(network(3), torch.zeros(1, 4)) == ("input", "0", "2", "4")
    assert four_places(network(1), torch.zeros(1, 4)) == ("input", "0", "0", "0")


class Transformer(nn.Module):
    """Its layers have the sequence first unless `batch_first`; `out_proj` of its attention never runs."""

    def __init__(self, layers: int, *, batch_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.hidden, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
        self.order = (0, 1, 2) if batch_first else (1, 0, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(self.first(x).permute(self.order)).permute(self.order)
        return self.last(self.hidden(h.mean(dim=1)))


class Shared(nn.Module):
    """A layer that runs twice, and heads that never run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.twice, self.c, self.last = (nn.Linear(4, 4) for _ in range(5))
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.a, self.b, self.twice, self.twice, self.c):
            x = layer(x).tanh()
        return self.last(x)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Transformer(1, batch_first=False), ("first", "first", "hidden")),
        (Transformer(1, batch_first=True), ("first", "encoder.layers.0.linear2", "hidden")),  # the usual choice
        (Transformer(2, batch_first=True), ("first", "encoder.layers.0.norm2", "hidden")),
        (Shared(), ("a", "b", "c")),
    ],
)
def test_layers_without_margins_are_left_out_where_the_usual_choice_has_one(
    model: nn.Module, expected: tuple[str, ...]
) -> None:
    x = torch.randn(60, *((5, 4) if isinstance(model, Transformer) else (4,)))
    assert four_places(model, x) == ("input", *expected)
    found = margin_signature(model, (x, model.eval()(x).argmax(dim=1)))
    assert found.places == ("input", *expected)
    assert bool(found.values.isfinite().all())


def test_misclassified_samples_are_left_out_and_counted() -> None:
    model = network()
    samples = labelled(model)
    found = margin_signature(model, samples)
    right = samples.select((torch.arange(60) % 10 != 0).nonzero()[:, 0])
    assert found.accuracy == pytest.approx(0.9)
    again = margin_signature(model, right).values
    variations = found.values - again  # the same margins, divided by the variation of other samples
    assert torch.allclose(variations, variations[:, :1].expand_as(variations), atol=1e-5)
    assert list(found.by_name()) == list(FEATURES)


def test_it_does_not_change_when_a_layer_is_scaled() -> None:
    model, scaled = network(), network()
    with torch.no_grad():
        for name, factor in (("0", 5.0), ("2", 0.2)):
            layer = scaled.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            layer.weight.mul_(factor)
            layer.bias.mul_(5.0 if name == "0" else 1.0)  # the scale of the layer before it goes on
    samples = labelled(model)
    first, second = (margin_signature(one, samples).values for one in (model, scaled))
    torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)


def test_total_variation_batch_by_batch() -> None:
    h = torch.randn(50, 3, 2) + 4
    found = TotalVariation()
    for part in h.split(17):
        found.add(part)
    rows = h.flatten(1).double()
    assert found.root() == pytest.approx(float((rows - rows.mean(dim=0)).square().sum(dim=1).mean().sqrt()))


def test_samples_are_drawn_by_the_seed_and_streams_are_taken_from() -> None:
    model = network()
    samples = labelled(model, 200)
    one, same, other = (margin_signature(model, samples, samples=100, seed=s).values for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    loader = torch.utils.data.DataLoader(samples, batch_size=25)
    found = margin_signature(model, loader, samples=90)
    assert found.samples == 90
    torch.testing.assert_close(found.values, margin_signature(model, samples.select(torch.arange(90))).values)


def test_too_few_right_answers_are_an_error() -> None:
    with pytest.raises(ValueError, match="correctly classified"):
        statistics_of(torch.ones(5, dtype=torch.float64))
    with pytest.raises(ValueError, match="samples"):
        margin_signature(network(), labelled(network()), samples=3)
    assert wm.diagnostics.margin_signature is margin_signature


def test_data_without_a_batch_are_an_error() -> None:
    loader = torch.utils.data.DataLoader(labelled(network()), batch_size=100, drop_last=True)
    with pytest.raises(ValueError, match="train has no samples"):
        margin_signature(network(), loader)
