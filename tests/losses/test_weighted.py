"""Class weights and sample weights of losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.nn import functional as F

import widemargin as wm
from widemargin import losses
from widemargin.losses.protocol import fast_backward, for_samples, is_capturable, norm_of, places_of
from widemargin.training import SGD


def _batch() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(24, 4)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), x, torch.arange(24) % 3


@pytest.mark.parametrize("loss", [losses.WideMargin(), losses.MarginLoss(), losses.CrossEntropy()])
def test_weights_multiply_the_values_and_not_the_statistics_of_the_batch(loss: losses.Loss) -> None:
    model, x, y = _batch()
    by_class, by_sample = torch.tensor([1.0, 0.0, 4.0]), torch.rand(24)
    found = losses.Weighted(loss=loss, classes=(1, 0, 4), samples=tuple(by_sample.tolist()))
    order = torch.randperm(24)
    values = found(model, x[order], y[order], index=order)
    torch.testing.assert_close(values, by_class[y[order]] * by_sample[order] * loss(model, x[order], y[order]))


def test_normalized_weights_are_those_of_pytorch() -> None:
    model, x, y = _batch()
    weight = torch.tensor([1.0, 5.0, 0.2])
    found = losses.Weighted(loss=losses.as_loss(F.cross_entropy), classes=weight, normalize=True)(model, x, y)
    torch.testing.assert_close(found.mean(), F.cross_entropy(model(x), y, weight=weight))


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    y = torch.tensor([0] * 7 + [2] * 2 + [1])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=y.numpy())
    assert losses.balanced_weights(y) == pytest.approx(tuple(expected))
    assert losses.balanced_weights(y, classes=4)[3] == 0
    assert losses.balanced_weights(torch.tensor([-1.0, 1.0, 1.0, 1.0])) == pytest.approx((2.0, 2 / 3))
    with pytest.raises(ValueError, match="classes is 2"):
        losses.balanced_weights(y, classes=2)


def test_a_binary_network_has_the_weights_of_minus_one_and_one() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 1), torch.randn(6, 4), torch.tensor([-1.0, 1.0] * 3)
    found = losses.Weighted(loss=losses.CrossEntropy(), classes=(3.0, 1.0))(model, x, y)
    expected = torch.tensor([3.0, 1.0] * 3) * losses.CrossEntropy()(model, x, y)
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="classes"):
        losses.Weighted(loss=losses.CrossEntropy(), classes=(3.0, 1.0, 1.0))(model, x, y)


def test_fit_ignores_samples_of_weight_zero() -> None:
    _, x, y = _batch()
    wrong = y.clone()
    wrong[12:] = (y[12:] + 1) % 3  # their labels must not matter
    weights = (1.0,) * 12 + (0.0,) * 12
    trained = []
    for labels in (y, wrong):
        torch.manual_seed(1)
        network = nn.Linear(4, 3)
        loss = losses.Weighted(loss=losses.CrossEntropy(), samples=weights)
        wm.fit(network, (x, labels), loss=loss, epochs=3, batch_size=8, optimizer=SGD(lr=0.1))
        trained.append(network.weight.detach())
    torch.testing.assert_close(*trained)


def test_a_rare_class_is_found_with_balanced_weights() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 2)
    y = (x[:, 0] + 0.8 * torch.randn(400) > 2.0).long()
    found = {}
    balanced = losses.Weighted(loss=losses.WideMargin(), classes=losses.balanced_weights(y))
    arms: dict[str, losses.Loss] = {"plain": losses.WideMargin(), "balanced": balanced}
    for name, loss in arms.items():
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for _ in range(40):
            optimizer.zero_grad()
            loss(model, x, y).mean().backward()
            optimizer.step()
        found[name] = wm.measure(model, (x, y))
    assert found["balanced"].balanced_accuracy > found["plain"].balanced_accuracy + 0.1
    assert found["balanced"].accuracy < found["plain"].accuracy


def test_places_and_norm_are_those_of_the_wrapped_loss() -> None:
    loss = losses.Weighted(loss=losses.MarginLoss(at=("input", "0"), p=1.0), classes=(1, 2, 3))
    assert (places_of(loss), norm_of(loss)) == (("input", "0"), 1.0)
    assert is_capturable(loss)
    wide = losses.Weighted(loss=losses.WideMargin(), classes=(1, 2, 3))
    assert for_samples(wide, 9000) == losses.Weighted(loss=losses.WideMargin(samples=9000), classes=(1, 2, 3))
    assert fast_backward(loss) is None  # its gradients would be unweighted


def test_bad_weights_get_a_sentence() -> None:
    model, x, y = _batch()
    with pytest.raises(ValueError, match="classes and samples"):
        losses.Weighted(loss=losses.CrossEntropy())
    with pytest.raises(ValueError, match=r"classes\[1\] is -1"):
        losses.Weighted(loss=losses.CrossEntropy(), classes=(1.0, -1.0))
    with pytest.raises(ValueError, match="samples is empty"):
        losses.Weighted(loss=losses.CrossEntropy(), samples=())
    with pytest.raises(ValueError, match="index"):
        losses.Weighted(loss=losses.CrossEntropy(), samples=(1.0,) * 24)(model, x, y)
    with pytest.raises(ValueError, match="classes has 2"):
        losses.Weighted(loss=losses.CrossEntropy(), classes=(1.0, 1.0))(model, x, y)
    with pytest.raises(ValueError, match="samples has 3"):
        losses.Weighted(loss=losses.CrossEntropy(), samples=(1.0,) * 3)(model, x, y, index=torch.arange(24))
    with pytest.raises(ValueError, match="index has -1"):
        losses.Weighted(loss=losses.CrossEntropy(), samples=(1.0,) * 24)(model, x, y, index=torch.arange(24) - 1)
