from __future__ import annotations

import pytest
import torch

import oracles_losses as slow
from widemargin.losses import Target
from widemargin.margins import output

SCORES = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def test_one_alpha_for_all_by_loop() -> None:
    expected = [slow.target(row.tolist(), int(y), 2.5) for row, y in zip(SCORES, LABELS, strict=True)]
    torch.testing.assert_close(Target(alpha=2.5).of(SCORES, LABELS), torch.tensor(expected, dtype=torch.float64))


def test_binary_by_loop() -> None:
    signs = torch.tensor([1.0, -1, 1, -1, 1, -1], dtype=torch.float64)
    expected = [slow.target([float(f)], y, 0.5) for f, y in zip(SCORES[:, 0], signs, strict=True)]
    for scores in (SCORES[:, 0], SCORES[:, :1]):
        torch.testing.assert_close(Target(alpha=0.5).of(scores, signs), torch.tensor(expected, dtype=torch.float64))


def test_at_zero_the_output_margin_is_alpha() -> None:
    goal = 3.0 * torch.nn.functional.one_hot(LABELS, 3).double()
    assert float(Target(alpha=3.0).of(goal, LABELS).max()) == 0.0
    assert output(goal, LABELS).tolist() == [3.0] * 6


def test_an_alpha_travels_with_its_sample() -> None:
    alphas = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    loss = Target(alpha=alphas)
    assert loss.needs_index
    assert not Target(alpha=1.0).needs_index
    order = torch.tensor([4, 0, 3])
    got = loss.of(SCORES[order], LABELS[order], index=order)
    expected = [slow.target(SCORES[k].tolist(), int(LABELS[k]), alphas[k]) for k in order.tolist()]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (None, "index is None"),
        (torch.tensor([0, 1]), r"index has shape \[2\]"),
        (torch.tensor([0, 1, 2, 3, 4, 9]), "index has 9.* 6 entries"),
        (torch.tensor([0, 1, 2, 3, 4, -1]), "index has -1.* 6 entries"),
    ],
)
def test_without_its_positions_a_batch_gets_a_sentence(index: torch.Tensor | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Target(alpha=(1.0,) * 6).of(SCORES, LABELS, index=index)


def test_an_empty_tuple_of_alphas() -> None:
    with pytest.raises(ValueError, match="alpha"):
        Target(alpha=())
