from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import oracles
import zoo
from placed import X, Y, distances, small
from widemargin import margins, places
from widemargin.modules import scores_of

EVERY = [*zoo.ZOO, *zoo.TOKENS, *zoo.RECURRENT, *zoo.LOGITS]


@pytest.mark.parametrize("entry", EVERY, ids=str)
def test_watching_changes_nothing_and_leaves_nothing(entry: zoo.Entry) -> None:
    network, x = entry.network(), entry.inputs()
    expected = scores_of(network(x))
    at = (entry.place,) if entry.vocabulary else ("input", entry.place)
    with places.watch(network, at) as zeros:
        scores = scores_of(network(x))
    assert torch.equal(scores, expected)
    assert tuple(zeros) == at
    assert all(zero.is_leaf and zero.requires_grad and not zero.any() for zero in zeros.values())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    with places.watch(network, at) as again:  # nothing remembers the first time
        network(x)
    assert all(again[name] is not zeros[name] for name in at)


@pytest.mark.parametrize("entry", EVERY, ids=str)
def test_gradients_at_places_are_those_at_activations(entry: zoo.Entry) -> None:
    """Against the gradient of each sample alone at the activation itself, captured by a hook."""
    network, x = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64)
    at = (entry.place,) if entry.vocabulary else (entry.place, "input")
    with places.watch(network, at) as zeros:
        scores = scores_of(network(x))
    column = scores if entry.classes == 1 else scores[:, 1]
    for name, gradient in zeros.gradients(column).items():
        for row, sample in zip(gradient, x):
            _, jacobian = oracles.gradients_of_sample(network, sample, name, "logits")
            expected = torch.from_numpy(2 * jacobian[1] if entry.classes == 1 else jacobian[1])
            torch.testing.assert_close(row.flatten(), expected, rtol=1e-9, atol=1e-11)


def test_gradients_by_finite_differences() -> None:
    """A place is where something can be added: f(h + t·e) − f(h − t·e) over 2t, entry by entry, autograd left out."""
    network, step = small(), 1e-5
    with places.watch(network, ("input", "2")) as at:
        scores = network(X)
    gradients = at.gradients(scores[:, 2])

    def moved(name: str, by: Tensor) -> Tensor:
        if name == "input":
            return network(X + by).detach()
        handle = network.get_submodule(name).register_forward_hook(lambda _, __, h: h + by)
        result: Tensor = network(X).detach()
        handle.remove()
        return result

    for name, gradient in gradients.items():
        for entry in range(gradient.shape[1]):
            by = torch.zeros_like(gradient)
            by[:, entry] = step
            slope = (moved(name, by)[:, 2] - moved(name, -by)[:, 2]) / (2 * step)
            torch.testing.assert_close(gradient[:, entry], slope, rtol=1e-6, atol=1e-9)


def test_the_output_is_a_place() -> None:
    """∇_f (f_y − f_i) has the entries 1 and −1: the distance there is (f_y − f_i)/√2, in l_∞ half of the difference."""
    network = small()
    margin = margins.output(network(X), Y)
    torch.testing.assert_close(distances(network, ("output",))["output"], margin / math.sqrt(2))
    torch.testing.assert_close(distances(network, ("output",), p=math.inf)["output"], margin / 2)


def test_a_module_named_output_is_the_place_output() -> None:
    network = nn.ModuleDict({"output": nn.Linear(4, 3)})
    network.forward = lambda x: 5 * network["output"](x)
    with places.watch(network, ("output",)) as at:
        scores = network(X.float())
    assert at.gradients(scores[:, 0])["output"].max() == 5


def test_the_graph_is_kept() -> None:
    """Gradients can be taken again, and the loss goes backward after that."""
    network = small()
    with places.watch(network, ("input",)) as at:
        scores = network(X)
    first = at.gradients(scores[:, 0])["input"]
    assert torch.equal(at.gradients(scores[:, 0])["input"], first)
    scores.sum().backward()
    assert network[0].weight.grad is not None


def test_a_place_after_the_scores_has_no_gradient() -> None:
    """What runs but does not lead to the scores: zeros, and so no distance, instead of an error."""

    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.aside = nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.aside(x)
            scores: Tensor = self.main(x)
            return scores

    assert distances(Aside().double(), ("aside",))["aside"].isnan().all()


def test_a_constant_network_has_no_distance() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.arange(3.0).repeat(len(x), 1)

    assert distances(Constant())["input"].isnan().all()


def test_repr_and_mapping() -> None:
    network = small()
    with places.watch(network, ("input", "2.0")) as at:
        assert repr(at) == "At({'input': not reached, '2.0': not reached})"
        network(X)
    assert repr(at) == "At({'input': [6, 4], '2.0': [6, 5]})"
    assert len(at) == 2
    assert dict(at).keys() == {"input", "2.0"}


def test_an_input_given_by_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()

        def forward(self, scale: float = 1.0, *, pixels: Tensor) -> Tensor:
            scores: Tensor = self.inner(pixels * scale)
            return scores

    network = Named()
    with places.watch(network, ("input",)) as at:
        scores = network(pixels=X)
    torch.testing.assert_close(margins.distance(scores, Y, at=at), distances(network.inner))
    with places.watch(network, ("input",)) as at:
        scores = network(2.0, pixels=X / 2)  # the first tensor, not the first argument
    torch.testing.assert_close(margins.distance(scores, Y, at=at)["input"], distances(network.inner)["input"] / 2)


class State(NamedTuple):
    hidden: Tensor
    cell: Tensor


@dataclasses.dataclass
class Record:
    logits: Tensor
    loss: Tensor | None = None


@pytest.mark.parametrize("kind", ["tensor", "tuple", "list", "namedtuple", "with logits", "record"])
def test_a_module_may_answer_more_than_a_tensor(kind: str) -> None:
    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Any:
            h = torch.tanh(self.linear(x))
            return {
                "tensor": h,
                "tuple": (h, x),
                "list": [h, x],
                "namedtuple": State(h, x),
                "with logits": zoo.Answer(logits=h, hidden=x),
                "record": Record(logits=h),
            }[kind]

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.answers, self.last = Answers(), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            answer = self.answers(x)
            if isinstance(answer, State):
                h = answer.hidden
            else:
                h = answer[0] if isinstance(answer, tuple | list) else getattr(answer, "logits", answer)
            scores: Tensor = self.last(h)
            return scores

    torch.manual_seed(0)
    network = Network().double()
    result = distances(network, ("answers",))["answers"]
    weight = network.last.weight.detach()
    with torch.no_grad():
        scores = network(X)
    for index, value in enumerate(result.tolist()):
        rival = oracles.rival_classes(scores[index].tolist(), int(Y[index]))[0]
        slope = (weight[Y[index]] - weight[rival]).norm()
        assert value == pytest.approx(((scores[index, Y[index]] - scores[index, rival]) / slope).item(), rel=1e-12)


def test_places_by_module() -> None:
    network = small()
    last = network.get_submodule("2.1")
    assert places.check_places(network, ("input", network[0], last, network)) == ("input", "0", "2.1", "output")
    with places.watch(network, (network[0],)) as at:
        network(X)
    assert list(at) == ["0"]
    wrapped = nn.DataParallel(network)
    assert places.check_places(wrapped, (network[2],)) == ("2",)


def test_all_places_are_the_input_and_the_layers_with_weights() -> None:
    network = small()
    expected = ["input", *(name for name, module in network.named_modules() if isinstance(module, nn.Linear))]
    assert list(places.check_places(network, "all")) == expected
    assert list(distances(network, "all")) == expected
    tokens = zoo.TOKENS[0].network()
    assert places.check_places(tokens, "all")[0] == "embedding"


def test_default_places() -> None:
    assert places.default_places(small(), X) == ("input",)
    entry = zoo.TOKENS[0]
    assert places.default_places(entry.network(), entry.inputs()) == ("embedding",)
    with pytest.raises(ValueError, match=r"integers.*Sequential.*nn\.Embedding"):
        places.default_places(small(), X.long())
    with pytest.raises(TypeError, match=r"dtype torch\.uint8.*x\.float\(\) / 255"):
        places.default_places(entry.network(), X.byte())


def test_recurrent_layers_leave_cudnn_while_watched() -> None:
    """cuDNN's have no backward pass in evaluation mode; the switch is put back."""
    entry = zoo.RECURRENT[0]
    before = torch.backends.cudnn.enabled
    with places.watch(entry.network(), ("input",)):
        assert not torch.backends.cudnn.enabled
    assert torch.backends.cudnn.enabled == before
    with places.watch(small(), ("input",)):
        assert torch.backends.cudnn.enabled == before


def refused(network: nn.Module, at: Any, x: Tensor = X) -> None:
    with places.watch(network, at):
        network(x)


@pytest.mark.parametrize(
    ("at", "error", "sentence"),
    [
        ("input", TypeError, r"^at is 'input'"),
        ((), ValueError, r"^at is empty"),
        (("input", "2.0", "input"), ValueError, r"^at has 'input' twice"),
        (("2.1", "2.2"), ValueError, r"^at has '2\.2'.*Sequential.*'2\.\d'"),
        (("imput",), ValueError, r"^at has 'imput'.*'input'"),
        (("xyz",), ValueError, r"^at has 'xyz'.*0, 1, 2, 2\.0, 2\.1, 3$"),
        (("",), ValueError, r"^at has ''"),
        ((3,), ValueError, r"^at has 3"),
        ((nn.Tanh(),), ValueError, r"^at has a Tanh"),
        (nn.Sequential(nn.Tanh()), TypeError, r"^at is a Sequential"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_an_unknown_place(at: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        refused(small(), at)


@pytest.mark.usefixtures("untyped")
def test_a_network_is_a_module() -> None:
    model: Any = lambda x: x  # noqa: E731
    with pytest.raises(TypeError, match=r"^model is a function"):
        refused(model, ("input",))


def test_a_module_that_runs_twice() -> None:
    entry = zoo.RECURRENT[1]
    network = entry.network()
    with pytest.raises(ValueError, match=r"^at has 'cell'"):
        refused(network, ("cell",), entry.inputs())
    assert not network.get_submodule("cell")._forward_hooks  # and nothing is left behind


def test_two_forward_passes() -> None:
    network = small()
    with places.watch(network, ("input",)):
        network(X)
        with pytest.raises(ValueError, match="at has 'input'"):
            network(X)


def test_a_place_that_is_not_reached() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.used(x)
            return scores

    with pytest.raises(ValueError, match=r"^at has 'unused'"):
        distances(Skips().double(), ("used", "unused"))
    with places.watch(small(), ("input",)) as at, pytest.raises(KeyError, match="'1' is not watched"):
        at["1"]


def test_the_batch_is_not_the_first_dimension() -> None:
    class Turned(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.turn = Turn(how)
            self.last = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            turned = self.turn(x)
            scores: Tensor = self.last(x) * turned.sum()
            return scores

    class Turn(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.how = how

        def forward(self, x: Tensor) -> Tensor:
            return x.T if self.how == "transposed" else x.sum()

    with pytest.raises(ValueError, match=r"at has 'turn' of shape \[4, 6\].*\b6\b"):
        distances(Turned("transposed").double(), ("turn",))
    with pytest.raises(ValueError, match=r"at has 'turn' of shape \[\]"):
        distances(Turned("summed").double(), ("turn",))


def test_tokens_have_no_gradient() -> None:
    entry = zoo.TOKENS[0]
    sentence = r"^at has 'input', but the input has dtype torch.int64 \(tokens\).*at=\('embedding',\)$"
    with pytest.raises(TypeError, match=sentence):
        refused(entry.network(), ("input",), entry.inputs())


def test_a_module_that_answers_something_else() -> None:
    class Odd(nn.Module):
        def __init__(self, answer: Any) -> None:
            super().__init__()
            self.inner = Inner(answer)

        def forward(self, x: Tensor) -> Tensor:
            self.inner(x)
            return x

    class Inner(nn.Module):
        def __init__(self, answer: Any) -> None:
            super().__init__()
            self.answer = answer

        def forward(self, x: Tensor) -> Any:
            return self.answer

    for answer, kind in (({"a": 1}, "dict"), ((), "tuple"), (None, "NoneType")):
        with pytest.raises(TypeError, match=rf"^at has 'inner'.* {kind}\b"):
            refused(Odd(answer), ("inner",))
    with pytest.raises(TypeError, match=r"^at has 'inner'.*torch\.int64"):
        refused(Odd(torch.zeros(6, 2, dtype=torch.long)), ("inner",))


def test_a_network_called_without_a_tensor() -> None:
    class Nothing(nn.Module):
        def forward(self, x: float) -> Tensor:
            return torch.full((2, 3), x)

    network = Nothing()
    with (
        pytest.raises(TypeError, match=r"^the network was called without a tensor"),
        places.watch(network, ("input",)),
    ):
        network(1.0)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_switched_off(off: Any) -> None:
    with off(), pytest.raises(RuntimeError, match=r"^at has 'input'"):
        refused(small(), ("input",))


def test_not_what_watch_gives() -> None:
    with pytest.raises(TypeError, match="at"):
        margins.distance(torch.zeros(6, 3), Y, at=("input",))  # type: ignore[arg-type]
