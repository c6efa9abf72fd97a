from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import named
from oracles_regularizers import class_norm, finite_differences, jacobian, last_linear, pair_norm, score_jacobians
from widemargin import places
from widemargin.regularizers import Jacobian
from widemargin.regularizers.jacobian import Form
from zoo import LOGITS, RECURRENT, TOKENS, ZOO, Entry

FORMS: tuple[Form, ...] = ("random", "sum", "pairwise", "pairwise-sum")
KWAY = [entry for entry in ZOO if entry.classes > 1]
BINARY = [entry for entry in ZOO if entry.classes == 1]


def drawn(entry: Entry, batch: int) -> Tensor:
    """For every sample a class that is not its label."""
    return (entry.labels(batch) + torch.arange(1, batch + 1) % (entry.classes - 1) + 1) % entry.classes


def call(form: Form, network: nn.Module, x: Tensor, y: Tensor, classes: Tensor, **settings: Any) -> Tensor:
    given = classes if form in ("random", "pairwise") else None
    return Jacobian(weight=0.7, form=form, **settings)(network, x, y, classes=given)


def smooth(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()


@pytest.mark.parametrize("entry", KWAY, ids=str)
def test_every_form_is_the_loop_over_samples_and_classes(entry: Entry) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64), entry.labels(3)
    v, chosen = last_linear(network), drawn(entry, 3)
    expected: dict[Form, list[float]] = {form: [] for form in FORMS}
    for J, label, c in zip(score_jacobians(network, x), y.tolist(), chosen.tolist()):
        others = [i for i in range(entry.classes) if i != label]
        expected["random"].append(class_norm(J, v, c))
        expected["sum"].append(sum(class_norm(J, v, i) for i in range(entry.classes)))
        expected["pairwise"].append(pair_norm(J, v, label, c))
        expected["pairwise-sum"].append(sum(pair_norm(J, v, label, i) for i in others))
    for form in FORMS:
        value = call(form, network, x, y, chosen)
        assert value.shape == (3,)
        torch.testing.assert_close(value, 0.7 * torch.tensor(expected[form], dtype=torch.float64))


def test_it_is_the_printed_equation_with_the_jacobian_of_what_enters_the_classifier() -> None:
    """‖(v_c/‖v_c‖)ᵀ J‖ with J the Jacobian of the network below its last layer: not through the scores at all."""
    network, x, y = smooth(), torch.rand(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    v, classes = last_linear(network), torch.tensor([2, 1, 0, 1])
    below = network[:-1]
    expected = [(v[c] / v[c].norm()) @ jacobian(below, sample) for c, sample in zip(classes, x)]
    value = Jacobian(weight=1.0)(network, x, y, classes=classes)
    torch.testing.assert_close(value, torch.stack([row.norm() for row in expected]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("entry", BINARY, ids=str)
def test_a_binary_network_has_one_class_vector(entry: Entry, form: Form) -> None:
    network, x = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64)
    expected = [class_norm(J, last_linear(network), 0) for J in score_jacobians(network, x)]
    value = Jacobian(weight=1.0, form=form)(network, x, entry.labels(3))
    torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64))


def test_a_binary_network_may_squeeze_its_score() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))
    x, y = torch.rand(5, 3), torch.tensor([1.0, -1, 1, 1, -1])
    torch.testing.assert_close(Jacobian(weight=1.0)(network, x, y), Jacobian(weight=1.0)(network[:3], x, y))


@pytest.mark.parametrize("entry", [*KWAY, *LOGITS, *TOKENS, *RECURRENT], ids=str)
@pytest.mark.parametrize("form", ["random", "pairwise-sum"])
def test_a_batch_is_its_samples_stacked_at_every_kind_of_place(entry: Entry, form: Form) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64), entry.labels(3)
    chosen = drawn(entry, 3)
    at = entry.place if entry.place != "output" else "input"
    together = call(form, network, x, y, chosen, at=at)
    alone = [call(form, network, x[[i]], y[[i]], chosen[[i]], at=at) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("form", ["random", "pairwise"])
def test_on_another_device_the_generator_of_the_cpu_is_not_used(form: Form) -> None:
    """A CUDA graph would repeat its numbers."""
    state = torch.get_rng_state()
    assert Jacobian(form=form).draw(torch.zeros(4, dtype=torch.int64, device="meta"), 3).device.type == "meta"
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("form", ["random", "pairwise"])
def test_of_one_seed_a_batch_draws_what_its_samples_draw_in_turn(form: Form) -> None:
    network, x, y = smooth(), torch.rand(40, 3, dtype=torch.float64), torch.arange(40) % 3
    regularizer = Jacobian(weight=1.0, form=form)
    torch.manual_seed(5)
    together = regularizer(network, x, y)
    torch.manual_seed(5)
    alone = [regularizer(network, x[[i]], y[[i]]) for i in range(40)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert not torch.equal(regularizer(network, x, y), together)


def test_draws_are_uniform_over_the_classes_and_never_the_label_in_pairs() -> None:
    y = torch.arange(30000) % 3
    random = Jacobian(weight=1.0).draw(y, 3)
    pair = Jacobian(weight=1.0, form="pairwise").draw(y, 3)
    # Five standard deviations of a binomial share.
    for share in ((random == c).double().mean() for c in range(3)):
        assert abs(float(share) - 1 / 3) < 5 * math.sqrt(2 / 9 / 30000)
    assert not (pair == y).any()
    assert abs(float(((pair - y) % 3 == 1).double().mean()) - 1 / 2) < 5 * math.sqrt(1 / 4 / 30000)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_derivatives_are_those_of_finite_differences(form: Form, normalize: bool) -> None:
    network, x, y = smooth(), torch.rand(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    chosen = torch.tensor([2, 0, 0, 1])
    coefficients = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)

    def value() -> Tensor:
        return coefficients @ call(form, network, x, y, chosen, normalize=normalize)

    slopes = torch.autograd.grad(value(), list(network.parameters()), materialize_grads=True)
    for slope, expected in zip(slopes, finite_differences(value, network)):
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-8)


def test_an_affine_classifier_has_the_value_one_and_no_slope() -> None:
    """v_cᵀI/‖v_c‖ is a unit vector."""
    network = nn.Linear(6, 3).double()
    value = Jacobian(weight=1.0)(network, torch.rand(5, 6, dtype=torch.float64), torch.zeros(5, dtype=torch.long))
    torch.testing.assert_close(value, torch.ones(5, dtype=torch.float64))
    (slope,) = torch.autograd.grad(value.sum(), network.weight)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def test_normalized_it_ignores_the_scale_of_the_classifier() -> None:
    network, x, y = smooth(), torch.rand(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    scaled = copy.deepcopy(network)
    scaled[-1].weight = nn.Parameter(3 * last_linear(network))
    for form in FORMS:
        for normalize, factor in ((True, 1), (False, 3)):
            one = call(form, network, x, y, (y + 1) % 3, normalize=normalize)
            torch.testing.assert_close(call(form, scaled, x, y, (y + 1) % 3, normalize=normalize), factor * one)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dead", ["classifier", "hidden"])
def test_where_the_gradient_is_zero_value_and_slopes_are_zero(form: Form, dead: str) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    if dead == "classifier":
        network[2].weight = nn.Parameter(torch.zeros(3, 4))
    else:
        network[0].bias = nn.Parameter(torch.full((4,), -100.0))
    value = Jacobian(weight=1.0, form=form)(network, torch.rand(4, 3), torch.tensor([0, 1, 2, 0]))
    assert torch.equal(value.detach(), torch.zeros(4))
    for slope in torch.autograd.grad(value.sum(), list(network.parameters()), materialize_grads=True):
        assert torch.equal(slope, torch.zeros_like(slope))


@pytest.mark.parametrize("form", FORMS)
def test_autocast(form: Form) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    x, y = torch.rand(8, 16), torch.arange(8) % 4
    exact = call(form, network, x, y, (y + 1) % 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = call(form, network, x, y, (y + 1) % 4)
        assert network(x).dtype == torch.bfloat16
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, exact, rtol=0.02, atol=0.0)
    value.mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def with_norm() -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    return network, torch.rand(6, 3, dtype=torch.float64), torch.arange(6) % 3


def test_frozen_statistics_are_constants_in_the_jacobian() -> None:
    """The network in evaluation mode with the statistics of this batch has the same Jacobians."""
    network, x, y = with_norm()
    value = Jacobian(weight=1.0, form="sum", statistics="frozen")(network, x, y)
    still = copy.deepcopy(network).eval()
    norm, hidden = still[1], network[0](x).detach()
    assert isinstance(norm, nn.BatchNorm1d)
    norm.running_mean, norm.running_var = hidden.mean(0), hidden.var(0, correction=0)
    torch.testing.assert_close(value, Jacobian(weight=1.0, form="sum")(still, x, y))


def test_coupled_statistics_take_the_gradient_of_the_sum_over_the_batch() -> None:
    network, x, y = with_norm()
    value = Jacobian(weight=1.0, form="sum", statistics="coupled")(network, x, y)
    z = x.clone().requires_grad_()
    rows = [torch.autograd.grad(network(z)[:, c].sum(), z)[0].norm(dim=1) for c in range(3)]
    sizes = last_linear(network).norm(dim=1)
    torch.testing.assert_close(value, sum((row / size for row, size in zip(rows, sizes)), torch.zeros(6)))
    frozen = Jacobian(weight=1.0, form="sum", statistics="frozen")(network, x, y)
    assert not torch.allclose(value, frozen)


@pytest.mark.parametrize("statistics", ["coupled", "frozen"])
def test_the_network_is_left_as_it_was(statistics: places.BatchStatistics) -> None:
    network, x, y = with_norm()
    before = copy.deepcopy(network.state_dict())
    Jacobian(weight=1.0, statistics=statistics)(network, x, y)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(m.training for m in network.modules())
    assert network[1].track_running_stats
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    assert all(p.grad is None for p in network.parameters())


def test_the_networks_own_forward_pass_gives_the_same() -> None:
    network, x, y = smooth(), torch.rand(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    regularizer = Jacobian(weight=2.0, form="sum", at="1")
    with places.watch(network, ("1",)) as at:
        scores = network(x)
    value = regularizer.of(scores, y, at=at, classifier=last_linear(network))
    torch.testing.assert_close(value, regularizer(network, x, y))
    with pytest.raises(ValueError, match=r"at watches \('1',\).*at='input'"):
        Jacobian(weight=1.0).of(scores, y, at=at, classifier=last_linear(network))
    with pytest.raises(ValueError, match=r"classifier has 4 rows.* 3 classes"):
        regularizer.of(scores, y, at=at, classifier=last_linear(network[:1]))


@pytest.mark.parametrize("form", FORMS)
def test_samples_may_have_class_vectors_of_their_own(form: Form) -> None:
    torch.manual_seed(0)
    networks = [nn.Linear(4, 3).double(), nn.Linear(4, 3).double()]
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 0, 1])
    classes = None if form.endswith("sum") else torch.tensor([1, 2, 0, 0, 1, 2])
    regularizer = Jacobian(weight=1.0, form=form, normalize=True)

    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([network(part.tanh()) for network, part in zip(networks, x.chunk(2))])

    with places.watch(Both(), ("input",)) as at:
        scores = Both()(x + at.add("input", torch.zeros_like(x)))
    own = torch.stack([network.weight for network in networks]).repeat_interleave(3, dim=0)
    together = regularizer.of(scores, y, at=at, classifier=lambda c: own[torch.arange(6)[:, None], c], classes=classes)
    for k, network in enumerate(networks):
        part = slice(3 * k, 3 * k + 3)
        chosen = None if classes is None else classes[part]
        alone = regularizer(nn.Sequential(nn.Tanh(), network), x[part], y[part], classes=chosen)
        assert torch.allclose(together[part], alone, rtol=1e-12)


def test_a_compiled_network_runs_uncompiled() -> None:
    network, x, y = smooth(), torch.rand(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    compiled = torch.compile(network, backend="aot_eager")
    assert isinstance(compiled, nn.Module)
    regularizer = Jacobian(weight=1.0, form="sum")
    torch.testing.assert_close(regularizer(compiled, x, y), regularizer(network, x, y))


class Head(nn.Module):
    """A convolution for a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.conv(x[..., None]).squeeze(2)
        return scores


@pytest.mark.parametrize(
    ("network", "settings", "sentence"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)), {}, "Sequential.*'0'"),
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Tanh()), {}, "Sequential.*'1'"),
        (Head(), {}, "a Head.*nn.Linear"),
        (nn.Sequential(nn.Linear(3, 2)), {"at": "0"}, "at has '0'.*classifier '0'"),
        (nn.Sequential(nn.Linear(3, 2)), {"at": "output"}, "at has 'output'"),
        (nn.Sequential(nn.Sequential(nn.Linear(3, 2))), {"at": "0"}, "at has '0'"),
        (nn.Linear(3, 2), {"at": "fc1"}, "at has 'fc1'"),
    ],
)
def test_networks_without_a_linear_last_layer_are_refused(
    network: nn.Module, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Jacobian(weight=1.0, **settings)(network, torch.rand(4, 3), torch.tensor([0, 1, 1, 0]))


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"weight": -1.0}, ValueError, "weight is -1.0"),
        ({"weight": math.nan}, ValueError, "weight is nan"),
        ({"weight": "1"}, TypeError, "weight is '1'"),
        ({"weight": 1.0, "form": "all"}, ValueError, "form is 'all'"),
        ({"weight": 1.0, "at": ("input",)}, TypeError, r"at is \('input',\)"),
        ({"weight": 1.0, "statistics": None}, ValueError, "statistics is None"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_settings_get_one_sentence(settings: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        Jacobian(**settings)


@pytest.mark.parametrize(
    ("form", "classes", "sentence"),
    [
        ("random", [0, 1], r"classes has shape \[2\], expected \[3\]"),
        ("random", [0, 3, 1], "classes has 3 at index 1"),
        ("pairwise", [1, 1, 1], "classes has 1 at index 1.*label"),
        ("sum", [1, 1, 1], "classes.*form is 'sum'"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_classes_get_one_sentence(form: Form, classes: list[int], sentence: str) -> None:
    x, y = torch.rand(3, 3, dtype=torch.float64), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=sentence):
        Jacobian(weight=1.0, form=form)(smooth(), x, y, classes=torch.tensor(classes))


@pytest.mark.parametrize("second_order", ["exact", "second-point"])
def test_inputs_by_name(second_order: Any) -> None:
    case = named.case()
    regularizer = Jacobian(form="sum", second_order=second_order)
    found = regularizer(case.masked, case.by_name, case.y)
    torch.testing.assert_close(found, regularizer(case.fixed, case.values, case.y))
