from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import oracles_losses as slow
from widemargin.losses import CrossEntropy, GeneralizedCrossEntropy, MultiClassHinge, SoftHinge


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.randint(5, (9,), generator=torch.Generator().manual_seed(1))


def test_cross_entropy_is_pytorchs(scores: torch.Tensor, labels: torch.Tensor) -> None:
    torch.testing.assert_close(CrossEntropy().of(scores, labels), F.cross_entropy(scores, labels, reduction="none"))


def test_binary_cross_entropy_is_that_of_two_scores(scores: torch.Tensor) -> None:
    signs = torch.where(scores[:, 1] > 0, 1.0, -1.0).double()
    f = scores[:, 0]
    two = torch.stack([torch.zeros_like(f), f], dim=1)
    expected = F.cross_entropy(two, (signs > 0).long(), reduction="none")
    torch.testing.assert_close(CrossEntropy().of(f, signs), expected)
    torch.testing.assert_close(CrossEntropy().of(f[:, None], signs), expected)
    torch.testing.assert_close(SoftHinge().of(f, signs), expected)


def test_label_smoothing_is_pytorchs(scores: torch.Tensor, labels: torch.Tensor) -> None:
    expected = F.cross_entropy(scores, labels, reduction="none", label_smoothing=0.1)
    torch.testing.assert_close(CrossEntropy(label_smoothing=0.1).of(scores, labels), expected)


@pytest.mark.parametrize("loss", [CrossEntropy(label_smoothing=0.2), GeneralizedCrossEntropy()], ids=repr)
def test_a_binary_network_is_one_of_two_scores(
    loss: CrossEntropy | GeneralizedCrossEntropy, scores: torch.Tensor
) -> None:
    signs = torch.where(scores[:, 1] > 0, 1.0, -1.0).double()
    two = torch.stack([torch.zeros(9, dtype=torch.float64), scores[:, 0]], dim=1)
    torch.testing.assert_close(loss.of(scores[:, 0], signs), loss.of(two, (signs > 0).long()))


@pytest.mark.parametrize("q", [0.2, 0.7, 1.0])
def test_generalized_cross_entropy_as_printed(scores: torch.Tensor, labels: torch.Tensor, q: float) -> None:
    p = scores.softmax(dim=1).gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(GeneralizedCrossEntropy(q=q).of(scores, labels), (1 - p**q) / q)


def test_generalized_cross_entropy_tends_to_cross_entropy(scores: torch.Tensor, labels: torch.Tensor) -> None:
    value = GeneralizedCrossEntropy(q=1e-8).of(scores, labels)
    torch.testing.assert_close(value, CrossEntropy().of(scores, labels), rtol=1e-6, atol=0)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 4.0])
def test_hinges_by_loop(scores: torch.Tensor, labels: torch.Tensor, gamma: float) -> None:
    for kind, oracle in (("crammer-singer", slow.crammer_singer), ("weston-watkins", slow.weston_watkins)):
        expected = [oracle(row.tolist(), int(y), gamma) for row, y in zip(scores, labels, strict=True)]
        value = MultiClassHinge(gamma=gamma, kind=kind).of(scores, labels)  # type: ignore[arg-type]
        torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64))


def test_weston_watkins_is_pytorchs_multi_margin_loss_times_the_classes(
    scores: torch.Tensor, labels: torch.Tensor
) -> None:
    expected = 5 * F.multi_margin_loss(scores, labels, margin=1.5, reduction="none")
    torch.testing.assert_close(MultiClassHinge(gamma=1.5, kind="weston-watkins").of(scores, labels), expected)


def test_soft_hinge_is_pytorchs_multilabel_soft_margin_loss_on_one_hot_labels(
    scores: torch.Tensor, labels: torch.Tensor
) -> None:
    one_hot = F.one_hot(labels, 5).double()
    expected = F.multilabel_soft_margin_loss(scores, one_hot, reduction="none")
    torch.testing.assert_close(SoftHinge().of(scores, labels), expected)


@pytest.mark.parametrize("loss", [CrossEntropy(), GeneralizedCrossEntropy(), MultiClassHinge(), SoftHinge()], ids=repr)
def test_bad_labels_and_scores_get_their_sentence(
    loss: CrossEntropy, scores: torch.Tensor, labels: torch.Tensor, untyped: None
) -> None:
    with pytest.raises(ValueError, match="y has 5 at index 0"):
        loss.of(scores, torch.cat([torch.tensor([5]), labels[1:]]))
    with pytest.raises(ValueError, match="scores has nan at index 2"):
        loss.of(scores.index_fill(0, torch.tensor([2]), torch.nan), labels)


def test_unknown_kinds() -> None:
    with pytest.raises(ValueError, match=r"gamma is 0\.0"):
        MultiClassHinge(gamma=0.0)
    with pytest.raises(ValueError, match=r"label_smoothing is 1\.5"):
        CrossEntropy(label_smoothing=1.5)
    with pytest.raises(ValueError, match=r"\bq is 0\.0"):
        GeneralizedCrossEntropy(q=0.0)


def test_an_unknown_kind(untyped: None) -> None:
    with pytest.raises(ValueError, match="kind is 'ww'"):
        MultiClassHinge(kind="ww")  # type: ignore[arg-type]
