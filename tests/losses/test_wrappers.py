"""Wrappers keep the fast backward of their loss; changed images, and the auxiliary head."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import attacks, losses, registry
from widemargin.losses import protocol
from widemargin.losses.classification import ScoreLoss, WeightedSum
from widemargin.losses.wrappers import Augmented, CropsAndFlips, WithAuxiliary, rotations
from widemargin.split_backward import backward


def _images(count: int = 6, channels: int = 3) -> Tensor:
    return torch.rand(count, channels, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("loss", [Augmented(), CropsAndFlips()])
def test_rows_of_a_table_are_refused(loss: Augmented | CropsAndFlips, untyped: None) -> None:
    with pytest.raises(ValueError, match=r"x has shape \[6, 8\], expected \[batch, channels, height, width\]"):
        loss.images(torch.rand(6, 8))


def test_nothing_is_changed_where_nothing_is_asked_for() -> None:
    x = _images()
    torch.testing.assert_close(Augmented(crop=0, contrast=0, hue=0).images(x), x)


def test_a_shift_shows_a_part_of_the_padded_image() -> None:
    x = _images()
    torch.manual_seed(0)
    moved = Augmented(crop=2, contrast=0, hue=0).images(x)
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
    for before, after in zip(padded, moved):
        windows = [before[:, i : i + 8, j : j + 8] for i in range(5) for j in range(5)]
        assert any(torch.allclose(window, after, atol=1e-6) for window in windows)


def test_contrast_keeps_the_mean_and_images_stay_in_range() -> None:
    x = 0.25 + 0.5 * _images()
    torch.manual_seed(1)
    changed = Augmented(crop=0, contrast=0.5, hue=0).images(x)
    torch.testing.assert_close(changed.mean(dim=(1, 2, 3)), x.mean(dim=(1, 2, 3)))
    spread = changed.std(dim=(1, 2, 3)) / x.std(dim=(1, 2, 3))
    assert float(spread.min()) > 0.49
    assert float(spread.max()) < 1.51
    assert len(set(spread.tolist())) == len(x)
    changed = Augmented(contrast=1.0, hue=0.5).images(_images())
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1


def test_a_third_of_a_turn_permutes_the_colours_and_grey_stays() -> None:
    turn = rotations(torch.tensor([0.0, 2 * math.pi / 3], dtype=torch.float64))
    torch.testing.assert_close(turn[0], torch.eye(3, dtype=torch.float64))
    assert sorted(turn[1].round(decimals=9).abs().flatten().tolist()) == [0.0] * 6 + [1.0] * 3
    torch.testing.assert_close(turn.sum(dim=2), torch.ones(2, 3, dtype=torch.float64))
    x = _images(channels=1)
    torch.testing.assert_close(Augmented(crop=0, contrast=0, hue=0.5).images(x), x)  # grey images have no hue


def test_draws_follow_the_global_generator() -> None:
    x = _images()
    first = [Augmented().images(x) for _ in (torch.manual_seed(3), torch.manual_seed(3))]
    torch.manual_seed(4)
    other = Augmented().images(x)
    assert not torch.equal(first[1], other)
    torch.manual_seed(3)
    assert torch.equal(Augmented().images(x), first[0])


def test_crops_and_flips_are_windows_of_the_padded_image_or_of_its_mirror() -> None:
    x = _images(40)
    torch.manual_seed(0)
    moved = CropsAndFlips(crop=2).images(x)
    seen = set()
    for before, after in zip(F.pad(x, (2, 2, 2, 2)), moved):
        windows = {(i, j, m): before[:, i : i + 8, j : j + 8] for i in range(5) for j in range(5) for m in (0, 1)}
        (found,) = [at for at, part in windows.items() if torch.equal(part.flip(-1) if at[2] else part, after)]
        seen.add(found)
    assert {at[0] for at in seen} == {at[1] for at in seen} == set(range(5))
    assert {at[2] for at in seen} == {0, 1}
    assert torch.equal(CropsAndFlips(crop=0, flip=False).images(x), x)
    assert CropsAndFlips().capturable
    with pytest.raises(ValueError, match="crop"):
        CropsAndFlips(crop=-1)


class _Answer(NamedTuple):
    logits: Tensor
    aux_logits: Tensor | None


class _Headed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.main, self.head = nn.Flatten(), nn.Linear(192, 4), nn.Linear(192, 4)

    def forward(self, x: Tensor) -> _Answer | Tensor:
        x = self.flatten(x)
        return _Answer(self.main(x), self.head(x)) if self.training else self.main(x)


@pytest.mark.parametrize("loss", [losses.CrossEntropy(), losses.large_margin(classes=1)])
def test_the_auxiliary_head_is_added_in_training_alone(loss: object) -> None:
    torch.manual_seed(0)
    model, x, y = _Headed(), _images(), torch.tensor([0, 1, 2, 3, 0, 1])
    plain = loss(model, x, y)  # type: ignore[operator]
    both = WithAuxiliary(loss=loss, weight=0.5)(model, x, y)  # type: ignore[arg-type]
    expected = plain + 0.5 * F.cross_entropy(model.head(x.flatten(1)), y, reduction="none")
    torch.testing.assert_close(both, expected)
    assert not model._forward_hooks
    model.eval()
    torch.testing.assert_close(WithAuxiliary(loss=loss)(model, x, y), loss(model, x, y))  # type: ignore[arg-type, operator]


@dataclass(frozen=True)
class Negated(losses.Wrapper):
    """The loss of the negated images."""

    loss: losses.Loss

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return -x, y


@pytest.mark.parametrize(
    "wrap",
    [
        lambda loss: Negated(loss=loss),
        lambda loss: Augmented(loss=loss, crop=2),
        lambda loss: Augmented(loss=Negated(loss=loss)),
        lambda loss: attacks.Adversarial(loss=loss, epsilon=0.1, step=0.05, steps=2),
    ],
    ids=["negated", "augmented", "both", "adversarial"],
)
@pytest.mark.parametrize(
    "loss",
    [losses.MarginLoss(at=("input", "1")), losses.odn(), losses.MarginLoss(p=1.0, stabilize=None)],
    ids=["two places", "odn", "printed"],
)
def test_a_wrapped_margin_loss_takes_the_split_backward_of_autograds_gradients(
    wrap: Callable[[losses.Loss], losses.Wrapper], loss: losses.Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward, "LEAST_BYTES", {})  # also where two backwards would be faster
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 4)).double()
    x, y = _images(12).double(), torch.arange(12) % 4
    wrapped = wrap(loss)
    torch.manual_seed(1)
    values = wrapped(model, x, y)
    (0.5 * values.mean()).backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    torch.manual_seed(1)
    done = losses.margin_backward(model, wrapped, x, y, scale=0.5)
    assert done.method == "split"
    torch.testing.assert_close(done.values, values.detach())
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_other_losses_keep_autograds_backward() -> None:
    assert protocol.fast_backward(Negated(losses.CrossEntropy())) is None
    assert protocol.fast_backward(WithAuxiliary(loss=losses.MarginLoss())) is None  # a second direction at the scores
    assert protocol.places_of(WithAuxiliary(loss=losses.MarginLoss())) == ("input",)


def test_the_number_of_samples_reaches_the_wrapped_loss() -> None:
    @dataclass(frozen=True)
    class Same(losses.Wrapper):
        loss: losses.Loss

    class Plain(losses.Wrapper):
        def __init__(self, loss: losses.Loss) -> None:
            self.loss = loss

    wide, plain = losses.WideMargin(), Plain(losses.WideMargin())
    assert protocol.for_samples(Same(Augmented(loss=wide)), 9) == Same(Augmented(loss=losses.WideMargin(samples=9)))
    assert protocol.for_samples(Same(wide), None) == Same(wide)
    assert protocol.for_samples(plain, 9) is plain
    own_call = WithAuxiliary(loss=wide), losses.Weighted(loss=wide, classes=(1.0, 2.0))
    for wrapper in own_call:
        assert getattr(protocol.for_samples(wrapper, 9), "loss", None) == losses.WideMargin(samples=9)
    other = Same(losses.CrossEntropy())
    assert protocol.for_samples(other, 9) is other


def test_losses_know_that_images_are_augmented() -> None:
    wide, known = losses.WideMargin(), losses.WideMargin(augmented=True)
    weighted = losses.Weighted(loss=wide, classes=(1.0, 2.0))
    for wrapper in (Augmented, CropsAndFlips):
        assert wrapper(loss=wide).loss == known
        assert wrapper(loss=weighted).loss == losses.Weighted(loss=known, classes=(1.0, 2.0))
        assert wrapper(loss=losses.WideMargin(augmented=False)).loss == losses.WideMargin(augmented=False)
        assert wrapper().loss == losses.CrossEntropy()
    assert protocol.for_augmented(weighted) == losses.Weighted(loss=known, classes=(1.0, 2.0))
    plain = losses.CrossEntropy()
    assert protocol.for_augmented(plain) is plain


def test_turns_are_those_of_the_wrapped_loss() -> None:
    wide = losses.WideMargin(every=3)
    first, other, last = Augmented(loss=wide).turns
    assert first == Augmented(loss=wide.turns[0])
    assert other == Augmented(loss=losses.CrossEntropy())
    assert other is last
    plain = Augmented(loss=losses.CrossEntropy())
    assert plain.turns == (plain,) == protocol.turns_of(plain)


def test_by_name() -> None:
    inner = {"name": "augmented", "crop": 2, "loss": {"name": "hinge", "cross_entropy": 0.1}}
    made = registry.loss({"name": "with-auxiliary", "weight": 0.2, "loss": inner})
    assert isinstance(made, WithAuxiliary)
    assert isinstance(made.loss, Augmented)
    assert (made.weight, made.loss.crop) == (0.2, 2)
    assert isinstance(made.loss.loss, WeightedSum)
    assert made.loss.loss.capturable


def test_a_sum_with_a_criterion_of_ones_own_is_not_captured() -> None:
    own = losses.as_loss(lambda scores, y: scores[:, 0])
    assert isinstance(own, ScoreLoss)
    assert not WeightedSum(parts=((1.0, losses.CrossEntropy()), (0.1, own))).capturable
    assert not losses.WideMargin(base=own).capturable


def test_a_wide_margin_is_captured_only_if_its_base_says_so() -> None:
    class Own(ScoreLoss):
        def of(self, scores: Tensor, y: Tensor) -> Tensor:
            return scores.gather(1, y[:, None])[:, 0].neg()

    class Capturable(Own):
        capturable = True

    assert not losses.WideMargin(base=Own()).capturable
    assert losses.WideMargin(base=Capturable()).capturable


def test_hues_are_turned_in_full_precision_under_autocast() -> None:
    x = _images()
    torch.manual_seed(0)
    expected = Augmented().images(x)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(Augmented().images(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [CropsAndFlips, Augmented])
def test_a_network_in_evaluation_mode_gets_the_images_as_they_are(kind: type[CropsAndFlips | Augmented]) -> None:
    model, x, y = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), _images(), torch.arange(6) % 3
    plain = losses.CrossEntropy()(model, x, y)
    assert torch.equal(kind()(model.eval(), x, y), plain)
    assert not torch.equal(kind()(model.train(), x, y), plain)


@pytest.mark.parametrize("kind", [CropsAndFlips, Augmented])
def test_changed_images_take_a_criterion_of_torch(kind: type[CropsAndFlips | Augmented]) -> None:
    model, x, y = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval(), _images(), torch.arange(6) % 3
    torch.testing.assert_close(kind(loss=nn.CrossEntropyLoss())(model, x, y), losses.CrossEntropy()(model, x, y))


def test_images_that_are_not_changed_are_not_augmented() -> None:
    assert CropsAndFlips(loss=losses.WideMargin()).loss == losses.WideMargin(augmented=True)
    assert CropsAndFlips(loss=losses.WideMargin(), crop=0, flip=False).loss == losses.WideMargin()
