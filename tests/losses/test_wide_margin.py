"""`WideMargin` against a loop over samples, and the laws that make it a default for any network and data."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oracles_wide_margin as oracle
from losses.wide_networks import CASES, Case
from widemargin import losses
from widemargin.losses import CrossEntropy, SoftHinge, WideMargin
from widemargin.losses.wide_margin import class_balance, penalty

NORMS = [name for name in CASES if "batch norm" in name or "instance norm" in name]


def gradients(network: nn.Module, values: Tensor) -> dict[str, Tensor]:
    named = dict(network.named_parameters())
    found = torch.autograd.grad(values.mean(), list(named.values()), materialize_grads=True)
    return dict(zip(named, found))


def same_as_the_oracle(case: Case, loss: WideMargin, size: int = 11, **settings: Any) -> None:
    network, (x, y) = case.network(), case.batch(size)
    settings = {"at": ("embedding",) if case.tokens else ("input",), "strength": loss.strength, **settings}
    torch.manual_seed(3)
    expected = oracle.wide_margin(network, x, y, p=loss.p, share=loss.share_of(len(y)), **settings)
    torch.manual_seed(3)
    values = loss(network, x, y)
    assert values.shape == (size,)
    torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-12)
    wanted = gradients(network, expected)
    torch.testing.assert_close(gradients(network, values), wanted, rtol=1e-7, atol=1e-11)
    base = gradients(network, torch.stack([oracle.cross_entropy(f, t) for f, t in zip(network(x), y.tolist())]))
    assert any(float((wanted[name] - base[name]).abs().max()) > 1e-6 for name in wanted)  # the term matters


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_those_of_a_loop_over_samples(name: str) -> None:
    same_as_the_oracle(CASES[name], WideMargin(strength=30.0))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("name", ["mlp", "batch norm", "tokens"])
def test_norms(name: str, p: float) -> None:
    same_as_the_oracle(CASES[name], WideMargin(strength=30.0, p=p))


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("name", ["mlp", "dropout", "batch norm", "batch norm and dropout", "tokens"])
def test_a_share_of_the_batch(name: str, share: float) -> None:
    same_as_the_oracle(CASES[name], WideMargin(strength=30.0, share=share))


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("mlp", ("1",)),
        ("mlp", ("input", "1", "4")),
        ("cnn", ("0", "input")),
        ("batch norm", ("input", "0", "1", "5")),
        ("batch norm and dropout", ("4", "7")),
        ("tokens", ("embedding", "hidden")),
        ("binary, scores [batch]", ("input", "0", "2")),
    ],
)
def test_places(name: str, at: tuple[str, ...], share: float) -> None:
    same_as_the_oracle(CASES[name], WideMargin(strength=30.0, at=at, share=share), at=at)


def test_the_base_loss_is_any_of_the_scores() -> None:
    case = CASES["mlp"]

    def soft_hinge(scores: Tensor, label: float) -> Tensor:
        terms = [torch.log(1 + torch.exp(-f if i == label else f)) for i, f in enumerate(scores)]
        return torch.stack(terms).mean()

    same_as_the_oracle(case, WideMargin(strength=30.0, base=SoftHinge()), base=soft_hinge)


@pytest.mark.parametrize("name", CASES)
def test_strength_0_is_cross_entropy(name: str) -> None:
    network, (x, y) = CASES[name].network(), CASES[name].batch()
    torch.manual_seed(3)
    expected = CrossEntropy()(network, x, y)
    wanted = gradients(network, expected)
    torch.manual_seed(3)
    values = WideMargin(strength=0.0)(network, x, y)
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(network, values), wanted, rtol=1e-9, atol=1e-13)


# ----------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("loss", [WideMargin(), WideMargin(p=1.0), WideMargin(p=math.inf), WideMargin(share=0.5)])
@pytest.mark.parametrize(("scale", "shift"), [(1000.0, 0.0), (1e-3, 0.0), (1.0, 7.0), (30.0, -400.0)])
def test_the_training_does_not_depend_on_the_units_of_the_data(loss: WideMargin, scale: float, shift: float) -> None:
    """c·x + t and the first layer W/c, b − W·t/c: the same scores in every step, with the other layers trained."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    other = copy.deepcopy(network)
    with torch.no_grad():
        weight, bias = other.get_submodule("0").parameters()
        weight.div_(scale)
        bias.sub_(shift * weight.sum(dim=1))
    x, y = CASES["mlp"].batch(40)
    x = x + y[:, None]  # a batch that can be learnt: the share of right answers grows
    first, second = trained(network, x, y, loss), trained(other, scale * x + shift, y, loss)
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-9)
    assert first[-1] < 0.8 * first[0]


@pytest.mark.parametrize("loss", [WideMargin(), WideMargin(p=1.0), WideMargin(p=math.inf), WideMargin(share=0.5)])
def test_the_training_does_not_depend_on_the_units_of_every_feature(loss: WideMargin) -> None:
    """K·x + t and the first layer W/K, b − W·t/K, with the units K of one table and of another."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x, y = CASES["mlp"].batch(40)
    x = x + y[:, None]
    found = []
    for units in ([1e-3, 1.0, 30.0, 0.2, 5e4], [2e5, 1e-4, 1.0, 1.0, 7.0]):
        scale, shift = torch.tensor(units).double(), torch.tensor([0.0, 3.0, -50.0, 0.0, 1e4]).double()
        model = copy.deepcopy(network)
        with torch.no_grad():
            weight, bias = model.get_submodule("0").parameters()
            weight.div_(scale)
            bias.sub_(weight @ shift)
        found.append(trained(model, scale * x + shift, y, loss))
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-9)
    assert found[0][-1] < 0.8 * found[0][0]


def trained(network: nn.Module, x: Tensor, y: Tensor, loss: WideMargin) -> list[float]:
    later = [p for name, p in network.named_parameters() if not name.startswith("0.")]
    optimizer = torch.optim.SGD(later, lr=0.3)
    found = []
    for _ in range(20):
        value = loss(network, x, y).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        found.append(float(value.detach()))
    return found


def test_the_first_layer_trains_alike_in_other_units() -> None:
    """Multiply the data by c, the first layer by 1/c, and its learning rate by 1/c²: the same training."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8, bias=False), nn.Tanh(), nn.Linear(8, 3)).double()
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.get_parameter("0.weight").div_(50)
    x, y = CASES["mlp"].batch(40)
    found = []
    for model, c in ((network, 1.0), (other, 50.0)):
        groups = [{"params": model[0].parameters(), "lr": 0.3 / c**2}, {"params": model[2].parameters(), "lr": 0.3}]
        optimizer = torch.optim.SGD(groups)
        for _ in range(20):
            optimizer.zero_grad()
            WideMargin()(model, c * x, y).mean().backward()
            optimizer.step()
        found.append(c * model.get_parameter("0.weight").detach())
    torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in CASES if "dropout" not in name])
def test_a_permuted_batch_has_permuted_values(name: str) -> None:
    network, (x, y) = CASES[name].network(), CASES[name].batch()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    values = WideMargin()(network, x, y)
    torch.testing.assert_close(WideMargin()(network, x[order], y[order]), values[order], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", ["mlp", "batch norm", "tokens", "binary"])
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_a_share_is_unbiased(name: str, parts: int) -> None:
    """Step lengths, shares of right answers and batch statistics are those of the whole batch.

    So the mean of the batch over rotations that bring every sample into the part once, as shuffled batches do on
    average, is the mean of the full loss; and so is its gradient.
    """
    network, (x, y) = CASES[name].network(), CASES[name].batch(12)
    full = WideMargin(strength=5.0)(network, x, y).mean()
    some = WideMargin(strength=5.0, share=1 / parts)
    mean = torch.stack([some(network, x.roll(k, 0), y.roll(k, 0)).mean() for k in range(parts)]).mean()
    torch.testing.assert_close(mean, full, rtol=1e-10, atol=0)
    torch.testing.assert_close(gradients(network, mean), gradients(network, full), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("read_as", ["logits", "probabilities"])
def test_one_step_of_several_is_unbiased(read_as: Any) -> None:
    network, (x, y) = CASES["mlp"].network(), CASES["mlp"].batch()
    network = nn.Sequential(network, nn.Softmax(dim=1)) if read_as == "probabilities" else network
    loss = WideMargin(strength=300.0, every=4, read_as=read_as)
    first, *others = loss.turns
    assert len(others) == 3
    assert all(other is others[0] for other in others)
    values, base = loss(network, x, y), others[0](network, x, y)
    torch.testing.assert_close(first(network, x, y), base + 4 * (values - base), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(base, WideMargin(strength=0.0, read_as=read_as)(network, x, y), rtol=1e-12, atol=0)
    assert float((values - base).detach().abs().max()) > 1e-3
    assert WideMargin().turns == (WideMargin(),)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_running_statistics_count_the_batch_once(name: str, share: float) -> None:
    network, (x, y) = CASES[name].network(), CASES[name].batch()
    once = copy.deepcopy(network)
    once(x)
    WideMargin(share=share, at=("input", "0"))(network, x, y).mean().backward()
    torch.testing.assert_close(dict(network.named_buffers()), dict(once.named_buffers()), rtol=1e-12, atol=0)
    assert all(m.training and getattr(m, "track_running_stats", True) == getattr(n, "track_running_stats", True)
               for m, n in zip(network.modules(), once.modules()))  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_generators_are_where_one_forward_pass_leaves_them(name: str) -> None:
    network, (x, y) = CASES[name].network(), CASES[name].batch()
    torch.manual_seed(3)
    network(x)
    expected = torch.get_rng_state()
    torch.manual_seed(3)
    WideMargin(at=None if CASES[name].tokens else ("input", "output"))(network, x, y).mean().backward()
    assert torch.equal(torch.get_rng_state(), expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_the_value_without_gradients(name: str, off: Callable[[], Any]) -> None:
    """Also of batches made inside, and the weights get no gradients."""
    network = CASES[name].network()
    torch.manual_seed(3)
    expected = WideMargin()(network, *CASES[name].batch())
    with off():
        torch.manual_seed(3)
        values = WideMargin()(network, *CASES[name].batch())
        assert not torch.is_grad_enabled()
    assert not values.requires_grad
    torch.testing.assert_close(values, expected.detach(), rtol=1e-12, atol=0)
    assert all(parameter.grad is None for parameter in network.parameters())


# ----------------------------------------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("name", ["mlp", "batch norm", "group norm", "dropout", "tokens", "binary"])
def test_degenerate_batches_have_finite_values_and_gradients(name: str, p: float, share: float) -> None:
    case = CASES[name]
    x, y = case.batch(8)
    batches = {
        "one label": (x, y[:1].expand(8)),
        "constant inputs": (x[:1].expand_as(x), y),
        "zeros": (torch.zeros_like(x), y),
        "duplicates with other labels": (x[:4].repeat(2, *[1] * (x.ndim - 1)), y),
        "two samples": (x[:2], y[:2]),
    }
    if "batch norm" not in name:
        batches["one sample"] = (x[:1], y[:1])
    for given in batches.values():
        network = case.network()
        values = WideMargin(p=p, share=share)(network, *given)
        values.mean().backward()
        assert bool(values.isfinite().all())
        assert all(bool(q.grad.isfinite().all()) for q in network.parameters() if q.grad is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_at_the_scores_are_bounded(dtype: torch.dtype) -> None:
    """With weights however large no value is NaN, and no difference of scores gets more than 2·10 and 1."""
    x, y = CASES["mlp"].batch()
    for size in (1.0, 1e3, 1e6, 1e9):
        network = CASES["mlp"].network().to(dtype)
        with torch.no_grad():
            network.get_parameter("4.weight").mul_(size)
            network.get_parameter("4.bias").mul_(size)
        values = WideMargin()(network, x.to(dtype), y)
        values.sum().backward()
        assert bool(values.isfinite().all())
        assert all(bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None)
        bias = network.get_parameter("4.bias").grad
        assert bias is not None
        assert float(bias.abs().sum()) <= 2 * len(y)  # the term's pulls at x and x − σu cancel in a shift of the scores


def test_the_penalty_is_the_square_and_linear_beyond_10() -> None:
    change = torch.tensor([-30.0, -10.0, -2.0, 0.0, 3.0, 10.0, 11.0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(penalty(change).tolist(), [500.0, 100.0, 4.0, 0.0, 9.0, 100.0, 120.0])
    (slope,) = torch.autograd.grad(penalty(change).sum(), change)
    torch.testing.assert_close(slope.tolist(), [-20.0, -20.0, -4.0, 0.0, 6.0, 20.0, 20.0])


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_the_balance_of_classes_is_that_of_a_loop(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    chances = torch.tensor([0.85, 0.15]) if classes < 3 else torch.tensor([0.6, 0.2, 0.15, 0.05])
    y = torch.multinomial(chances, 60, replacement=True, generator=generator).view(3, 20)
    scores = torch.randn(60, classes, dtype=torch.float64, generator=generator)
    if classes == 1:
        y, other = 2.0 * y - 1, None
    else:
        other = (y.flatten() + torch.randint(1, classes, (60,), generator=generator))[:, None] % classes
    found = class_balance(y, other, scores)
    for network in range(3):
        labels = y[network].tolist()
        rivals = [None] * 20 if other is None else other.view(3, 20)[network].tolist()
        expected = [oracle.balance(labels, label, rival) for label, rival in zip(labels, rivals)]
        torch.testing.assert_close(found[network].tolist(), expected, rtol=1e-12, atol=0)
    assert float(found.min()) < 1


def test_classes_that_differ_by_chance_are_balanced_and_a_rare_one_is_not() -> None:
    y = torch.tensor([[0] * 10 + [1] * 6, [0] * 15 + [1]])
    even, rare = class_balance(y, 1 - y.view(-1, 1), torch.zeros(32, 2))
    assert even.min() > 0.98
    torch.testing.assert_close(rare[[0, -1]], torch.tensor([(1 + 0.5**0.5) ** 2 / 15, 1.0]))


def test_a_batch_of_one_sample_is_an_error_of_batch_norm_itself() -> None:
    """As in PyTorch: there is no variance, and the running one would be infinite."""
    network, (x, y) = CASES["flat batch norm"].network(), CASES["flat batch norm"].batch(1)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        WideMargin()(network, x, y)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"samples": 0}, ValueError, "samples is 0"),
        ({"samples": 1.5}, TypeError, "samples is 1.5"),
        ({"augmented": 1}, TypeError, "augmented is 1"),
        ({"strength": -1.0}, ValueError, "strength is -1"),
        ({"strength": math.nan}, ValueError, "strength is nan"),
        ({"strength": "1"}, TypeError, "strength is '1'"),
        ({"share": 0.0}, ValueError, "share is 0"),
        ({"share": 1.5}, ValueError, "share is 1.5"),
        ({"every": 0}, ValueError, "every is 0"),
        ({"share": True}, TypeError, "share is True"),
        ({"p": 0.5}, ValueError, "p is 0.5"),
        ({"p": "2"}, TypeError, "p is '2'"),
        ({"at": "input"}, TypeError, "at is 'input'"),
        ({"at": ()}, TypeError, r"at is \(\)"),
        ({"at": 3}, TypeError, "at is 3"),
        ({"base": losses.large_margin()}, TypeError, "base is MarginLoss"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_wrong_arguments(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=rf"^{words}"):
        WideMargin(**given)


@pytest.mark.usefixtures("untyped")
def test_wrong_places_and_labels() -> None:
    network, (x, y) = CASES["mlp"].network(), CASES["mlp"].batch()
    with pytest.raises(ValueError, match=r"^at has 'layer'"):
        WideMargin(at=("layer",))(network, x, y)
    with pytest.raises(ValueError, match=r"^at has '1' twice"):
        WideMargin(at=("1", "1"))(network, x, y)
    with pytest.raises(ValueError, match=r"^y has 3"):
        WideMargin()(network, x, y + 1)
    with pytest.raises(ValueError, match=r"nn\.Embedding"):
        WideMargin()(network, x.long(), y)


def test_a_place_whose_first_dimension_is_not_the_batch() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turned, self.output = nn.Identity(), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.output(self.turned(x.T).T)
            return scores

    x, y = CASES["mlp"].batch()
    with pytest.raises(ValueError, match=r"^at has 'turned'.*\b5\b.*\b11\b"):
        WideMargin(at=("turned",))(Other().double(), x, y)


@pytest.mark.parametrize("count", [1, 5])
def test_a_batch_with_one_label_has_the_base_alone(count: int) -> None:
    """It does not show how far other classes are; of a validation set sorted by class every batch may be one."""
    network, (x, y) = CASES["mlp"].network(), CASES["mlp"].batch(count)
    assert torch.equal(WideMargin()(network, x, y[:1].expand(count)), CrossEntropy()(network, x, y[:1].expand(count)))
