"""Embeddings of networks of tokens: the first one that runs is the place of their margins."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
import zoo
from widemargin import losses, places
from widemargin.embeddings import embedding_places
from widemargin.modules import NamedInputs

TOKENS, LABELS = torch.arange(24).view(6, 4) % 11, torch.arange(6) % 3


class Tied(nn.Module):
    """An encoder whose embedding has the weight of another module that does not run, as in T5."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shared = nn.Embedding(11, 8)
        self.encoder = zoo.TokenTransformer()
        self.encoder.embedding.weight = self.shared.weight

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.encoder(tokens)
        return scores


def test_the_first_embedding_that_runs_is_the_default_place() -> None:
    model = Tied()
    assert embedding_places(model, torch.int64) == ["shared", "encoder.embedding"]
    assert places.default_places(model, TOKENS) == ("encoder.embedding",)
    named = NamedInputs({"tokens": TOKENS})
    assert places.default_places(copy.deepcopy(model), named) == ("encoder.embedding",)  # type: ignore[arg-type]
    expected = wm.measure(model.encoder, (TOKENS, LABELS)).margins["embedding"]
    assert torch.equal(wm.measure(model, (TOKENS, LABELS)).margins["encoder.embedding"], expected)
    assert wm.explain(model, TOKENS, search="own", steps=2)[0].place == "encoder.embedding"
    loss = losses.WideMargin()
    assert torch.equal(loss(model, TOKENS, LABELS), loss(model.encoder, TOKENS, LABELS))


class Positions(nn.Module):
    """The embedding of positions is registered before that of tokens."""

    def __init__(self, *, time_first: bool = False) -> None:
        super().__init__()
        self.positions, self.tokens = nn.Embedding(4, 8), nn.Embedding(11, 8)
        self.head, self.time_first = nn.Linear(8, 3), time_first

    def forward(self, tokens: Tensor) -> Tensor:
        positions = self.positions(torch.arange(tokens.shape[1]))
        if self.time_first:
            hidden = self.tokens(tokens.T) + positions[:, None]
            scores: Tensor = self.head(hidden.relu().mean(dim=0))
            return scores
        scores = self.head((self.tokens(tokens) + positions).relu().mean(dim=1))
        return scores


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_an_embedding_without_a_row_for_every_sample_is_no_default_place(count: int) -> None:
    """Not even where there are as many samples as positions."""
    tokens = TOKENS[:count]
    assert places.default_places(Positions(), tokens) == ("tokens",)
    if count > 1:
        with pytest.raises(
            ValueError, match=r"no embedding of Positions has a row for every sample \(positions, tokens\)"
        ):
            places.default_places(Positions(time_first=True), tokens)


def test_without_an_embedding_the_input_is_the_first_one_of_numbers() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, mask: Tensor, x: Tensor) -> Tensor:
            scores: Tensor = self.layer(x * mask)
            return scores

    model, x, mask = Masked(), torch.randn(6, 5), torch.ones(6, 5, dtype=torch.bool)
    values = losses.WideMargin(strength=30.0)(model, NamedInputs({"mask": mask, "x": x}), LABELS)  # type: ignore[arg-type]
    torch.testing.assert_close(values, losses.WideMargin(strength=30.0)(model.layer, x, LABELS))


def test_the_probe_leaves_nothing_behind_and_its_errors_to_the_caller() -> None:
    model = Tied().train()
    places.default_places(model, TOKENS)
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    other = Tied()
    with torch.inference_mode():
        assert places.default_places(other, TOKENS.clone()) == ("encoder.embedding",)
    with pytest.raises(ValueError, match=r"^x has shape \[6, 4\] and dtype torch\.int64, which .*index out of range"):
        wm.measure(Tied(), (TOKENS + 7, LABELS))


def test_a_place_that_does_not_run_is_named() -> None:
    for call in (
        lambda: wm.measure(Tied(), (TOKENS, LABELS), at=("shared",)),
        lambda: wm.explain(Tied(), TOKENS, at="shared"),
    ):
        with pytest.raises(ValueError, match=r"^at has 'shared', which a forward pass of Tied does not reach"):
            call()
