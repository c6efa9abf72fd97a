"""`margin_backward` gives the gradients of plain autograd, by the split wherever that is exact."""

from __future__ import annotations

import copy
import gc
import inspect
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from split_backward.networks import LOSS, NETWORKS, batch, network
from step_cost.transformer import VisionTransformer
from subprocesses import child_env
from widemargin.losses import Band, CrossEntropy, Hinge, MarginLoss
from widemargin.split_backward.graph import graph_of
from widemargin.training import Backward, margin_backward
from zoo import LOGITS, RECURRENT, TOKENS, ZOO, Entry

FORMS = {
    "default": MarginLoss(penalty=Hinge(gamma=6.0)),
    "printed": MarginLoss(penalty=Hinge(gamma=6.0), stabilize=None),
    "band": MarginLoss(penalty=Band(r=3.0, theta=2.0, mu=0.5)),
    "band, printed": MarginLoss(penalty=Band(r=3.0, theta=2.0, mu=0.5), stabilize=None),
    "clip": MarginLoss(penalty=Hinge(gamma=6.0), clip=1.9),
    "softmax": MarginLoss(penalty=Hinge(gamma=50.0), read_as="softmax"),
    "l_1": MarginLoss(penalty=Hinge(gamma=1000.0), p=1.0),
    "l_inf": MarginLoss(penalty=Hinge(gamma=1.0), p=float("inf")),
    "places": MarginLoss(penalty=Hinge(gamma=(6.0, 0.2, 5.0)), at=("input", "fc1", "output")),
    "a late place": MarginLoss(at=("fc1",)),
    "chosen by a probe": MarginLoss(penalty=Hinge(gamma=6.0), classes="all", probes=1),
    "chosen by a probe, printed": MarginLoss(penalty=Hinge(gamma=6.0), classes="all", probes=2, stabilize=None),
    "chosen by a probe at a late place": MarginLoss(penalty=Hinge(gamma=6.0), classes="all", probes=1, at=("fc1",)),
}

REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "cross-entropy": ({"cross_entropy": 0.5}, "cross-entropy term"),
    "second order": ({"second_order": True}, "second_order=True"),
    "second point": ({"second_order": "second-point"}, "second_order='second-point'"),
    "two classes": ({"classes": 2}, "takes 2 classes"),
    "all classes": ({"classes": "all"}, "takes 3 classes"),
    "probes": ({"classes": "all", "probes": 3, "aggregate": "sum"}, "estimated by random directions"),
}

ALONE = {  # of NETWORKS, in training mode: why not the split
    "resnet, batch norm": "'1' (BatchNorm2d)",
    "mixing": "'1.weight'",
    "gated mixing": "one by one",
    "clipped gradients": "'1.weight'",
    "checkpointing": "'inner'",
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("entry", [*ZOO, *TOKENS, *RECURRENT, *LOGITS], ids=str)
def test_gradients_over_the_zoo(entry: Entry, training: bool) -> None:
    model = entry.network(dtype=torch.float64).train(training)
    x, y = entry.inputs(9, dtype=torch.float64), entry.labels(9, dtype=torch.float64)
    loss = MarginLoss(at=(entry.place,) if entry.vocabulary else ("input", entry.place))
    done = assert_as_autograd(model, loss, x, y)
    mixes = training and "batch-norm" in entry.traits
    assert done.method == ("two" if mixes or entry in RECURRENT else "split"), done


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_other_networks(name: str, training: bool) -> None:
    done = assert_as_autograd(network(name).train(training), LOSS, *batch())
    why = ALONE.get(name, "") if training or "batch norm" not in name else ""
    assert (done.method, why in done.reason) == ("two" if why else "split", True), done


@pytest.mark.parametrize("statistics", ["coupled", "frozen"])
def test_batch_statistics_take_two_backwards(statistics: Any) -> None:
    done = assert_as_autograd(network("resnet, batch norm"), MarginLoss(statistics=statistics), *batch())
    assert done.method == "two"


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("samples", [1, 5, 9])
def test_gradients_of_every_form_of_the_loss(name: str, samples: int) -> None:
    x, y = cnn().inputs(samples, dtype=torch.float64), cnn().labels(samples)
    assert assert_as_autograd(cnn().network(dtype=torch.float64), FORMS[name], x, y).method == "split"


def test_a_binary_network_with_all_classes_has_one() -> None:
    entry = next(entry for entry in ZOO if entry.name == "elsayed-toy")
    x, y = entry.inputs(9, dtype=torch.float64), entry.labels(9)
    assert assert_as_autograd(entry.network(dtype=torch.float64), MarginLoss(classes="all"), x, y).method == "split"


@pytest.mark.parametrize("name", REASONS)
def test_what_the_loss_rules_out(name: str) -> None:
    settings, reason = REASONS[name]
    done = assert_as_autograd(network("resnet, group norm"), MarginLoss(**settings), *batch())
    assert done.method == "two"
    assert reason in done.reason


def test_two_backwards_are_those_of_autograd_bit_for_bit() -> None:
    model = network("resnet, batch norm")
    wanted, values = plain(model, LOSS, *batch())
    done = margin_backward(model, LOSS, *batch())
    assert torch.equal(done.values, values)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, wanted[name])


def test_the_line_says_which_way_and_why() -> None:
    done = margin_backward(network("vit"), LOSS, *batch())
    assert repr(done) == f"split backward: {done.reason}"
    assert "11 layers" in done.reason
    done = margin_backward(network("vit"), MarginLoss(cross_entropy=1.0), *batch())
    assert repr(done) == f"two backwards: {done.reason}"


def test_a_limit_of_memory() -> None:
    model = network("vit")
    scores, at, _ = LOSS.forward(model, batch()[0])
    kept = graph_of(scores, list(at.values())).kept_bytes()
    assert margin_backward(model, LOSS, *batch(), memory=kept).method == "split"
    done = assert_as_autograd(model, LOSS, *batch(), memory=kept - 1)
    assert done.method == "two"
    assert f"memory={kept - 1}" in done.reason
    done = assert_as_autograd(model, LOSS, *batch(), memory=0)
    assert (done.method, done.reason) == ("two", "memory=0")


def test_gradients_accumulate() -> None:
    model = network("resnet, group norm")
    wanted, _ = plain(model, LOSS, *batch())
    for _ in range(3):
        margin_backward(model, LOSS, *batch(), scale=0.5)
    assert_close(model, {name: 1.5 * gradient for name, gradient in wanted.items()})


def test_an_empty_batch_is_refused_as_by_the_loss() -> None:
    with pytest.raises(ValueError, match="empty batch"):
        margin_backward(network("vit"), LOSS, *(part[:0] for part in batch()))


@pytest.mark.parametrize("name", ["resnet, group norm", "convolutions"])
def test_channels_last(name: str) -> None:
    model, (x, y) = channels_last(network(name)), batch()
    wanted, _ = plain(model, LOSS, x.to(memory_format=torch.channels_last), y)
    assert assert_as_autograd(model, LOSS, x.to(memory_format=torch.channels_last), y).method == "split"
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.stride() == wanted[key].stride()


def test_frozen_parameters_get_no_gradient_and_inputs_may_have_one() -> None:
    model = network("vit")
    model.get_parameter("patches.weight").requires_grad_(False)
    x, y = batch()
    x.requires_grad_()
    assert assert_as_autograd(model, LOSS, x, y).method == "split"
    assert model.get_parameter("patches.weight").grad is None


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_under_autocast_with_a_scaled_loss(scale: float) -> None:
    """As near to float32 as bfloat16 is, and nearer to plain autograd under autocast."""
    model, (x, y) = network("resnet, group norm").float(), batch(32, dtype=torch.float32)
    exact, _ = plain(model, LOSS, x, y)
    theirs = copy.deepcopy(model)
    with torch.autocast("cpu", torch.bfloat16):
        values = LOSS(theirs, x, y)
        done = margin_backward(model, LOSS, x, y, scale=torch.tensor(scale))
    values.mean().backward()
    assert done.method == "split"
    torch.testing.assert_close(done.values, values.detach())
    ours, other = (
        torch.cat([p.grad.flatten() for p in one.parameters() if p.grad is not None]) for one in (model, theirs)
    )
    float32 = torch.cat([gradient.flatten() for gradient in exact.values()])
    assert (ours / scale - float32).norm() < 0.5 * float32.norm()
    assert (ours / scale - other).norm() < 0.1 * float32.norm()


def test_hooks_after_accumulation_are_called_once() -> None:
    model = network("shared parameters")
    called: list[Tensor] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(called.append)
    assert margin_backward(model, LOSS, *batch()).method == "split"
    assert sorted(map(id, called)) == sorted(map(id, model.parameters()))


def test_hooks_that_must_see_the_gradients_of_the_loss() -> None:
    model = network("vit")
    handle = model.get_submodule("layer").register_full_backward_hook(lambda *_: None)
    done = assert_as_autograd(model, LOSS, *batch())
    assert done.method == "two"
    assert "'layer'" in done.reason
    handle.remove()
    model.get_parameter("output.weight").register_hook(lambda gradient: 2 * gradient)
    done = margin_backward(model, LOSS, *batch())
    assert done.method == "two"
    assert "'output.weight'" in done.reason


# Dynamo hides these warnings of its own by a filter that does not hold where warnings are errors.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",
)
@pytest.mark.parametrize(("at", "way"), [(("input",), "two"), (("input", "4.conv1"), "split")])
def test_compiled_networks(at: tuple[str, ...], way: str) -> None:
    """With a hidden place a network runs uncompiled, and is split."""
    torch.compiler.reset()
    model, loss = network("resnet, group norm"), MarginLoss(at=at)
    wanted, _ = plain(model, loss, *batch())
    compiled: Any = torch.compile(model, backend="aot_eager")
    done = margin_backward(compiled, loss, *batch())
    assert_close(model, wanted)
    assert done.method == way
    assert ("compiled" in done.reason) == (way == "two")


def test_the_trial_leaves_no_trace() -> None:
    model = network("resnet, batch norm").eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert margin_backward(model, LOSS, *batch()).method == "split"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


class Mark(torch.autograd.Function):
    """The identity, whose node in the graph holds something that can be seen to go."""

    alive: ClassVar[weakref.WeakSet[nn.Module]] = weakref.WeakSet()

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark = nn.Module()
        Mark.alive.add(ctx.mark)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class Marked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        marked: Tensor = Mark.apply(x)
        return marked


def test_the_graph_is_let_go() -> None:
    """A hook that stayed on a node would hold the graph for ever, unseen by Python's collector."""
    layers = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 4))
    model = channels_last(nn.Sequential(Marked(), *layers).double())
    x, y = batch()
    assert margin_backward(model, LOSS, x.to(memory_format=torch.channels_last), y).method == "split"
    gc.collect()
    assert not Mark.alive


def test_dropout_draws_what_plain_autograd_draws() -> None:
    model = network("vit, dropout")
    torch.manual_seed(5)
    wanted, values = plain(model, LOSS, *batch())
    torch.manual_seed(5)
    done = margin_backward(model, LOSS, *batch())
    assert_close(model, wanted)
    torch.testing.assert_close(done.values, values)


def test_two_processes_of_ddp(tmp_path: Path) -> None:
    """The gradients of both are those of the joint batch, whose scale the loss knows; hooks of DDP add them up."""
    script = Path(__file__).parent / "ddp_backward.py"
    environment = child_env(OMP_NUM_THREADS="1")
    command = [sys.executable, str(script), str(tmp_path)]
    started = [subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE) for rank in range(2)]
    said = [process.communicate(timeout=120)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    for name in ("vit", "resnet, batch norm"):
        first, second = (load_file(tmp_path / f"{name}.{rank}.safetensors") for rank in range(2))
        assert all(torch.equal(first[key], second[key]) for key in first)
    alone, _ = plain(network("vit"), LOSS, *batch(10))
    for key, gradient in load_file(tmp_path / "vit.0.safetensors").items():
        torch.testing.assert_close(gradient, alone[key], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"loss": CrossEntropy()}, TypeError, "loss is a CrossEntropy"),
        ({"memory": -1}, ValueError, "memory is -1"),
    ],
)
def test_bad_arguments(given: dict[str, Any], error: type[Exception], sentence: str) -> None:
    x, y = batch()
    with pytest.raises(error, match=sentence):
        inspect.unwrap(margin_backward)(**{"model": network("vit"), "loss": LOSS, "x": x, "y": y, **given})


def channels_last(model: nn.Module) -> nn.Module:
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def cnn() -> Entry:
    return next(entry for entry in ZOO if entry.name == "elsayed-mnist-cnn")


def plain(model: nn.Module, loss: MarginLoss, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients that autograd gives a copy of `model`, and the values of the loss."""
    model = copy.deepcopy(model)
    values = loss(model, x, y)
    values.mean().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, values.detach()


def assert_as_autograd(
    model: nn.Module, loss: MarginLoss, x: Tensor, y: Tensor, *, memory: int | None = None
) -> Backward:
    model.zero_grad()
    torch.manual_seed(0)
    wanted, values = plain(model, loss, x, y)
    at_input = x.grad
    x.grad = None
    torch.manual_seed(0)
    done = margin_backward(model, loss, x, y, memory=memory)
    assert_close(model, wanted)
    torch.testing.assert_close(done.values, values, rtol=1e-10, atol=1e-12)
    assert (x.grad is None) == (at_input is None)
    if x.grad is not None:
        torch.testing.assert_close(x.grad, at_input, rtol=0, atol=1e-10)
    return done


def assert_close(model: nn.Module, wanted: dict[str, Tensor]) -> None:
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == wanted.keys()
    assert any(gradient.any() for gradient in wanted.values())
    for name, gradient in wanted.items():
        error = float((found[name] - gradient).abs().max())
        assert error < 1e-10, f"{name}: {error}"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("wrong", ["labels", "scores"])
def test_a_gpu_is_not_waited_for_and_still_says_what_is_wrong(wrong: str, channels_last: bool) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).cuda()
    if channels_last:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, y = torch.randn(6, 2, 6, 6).cuda(), torch.tensor([0, 1, 2, 0, 1, 2]).cuda()
    loss = MarginLoss()
    margin_backward(network, loss, x, y, is_replayed=True)
    network.zero_grad()
    if wrong == "labels":
        y[4] = 3
    else:
        x[4, 0, 0, 0] = torch.inf
    for is_replayed in (False, True):
        with pytest.raises(ValueError, match="at index 4"):
            margin_backward(network, loss, x, y, is_replayed=is_replayed)
        assert all(parameter.grad is None for parameter in network.parameters())


def test_a_class_chosen_by_a_probe_is_split_under_autocast_too() -> None:
    """And with torch's own attention, which a pass that carries derivatives along takes in plain operations."""
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    vit = VisionTransformer(size=8, patch=4, width=8, depth=2, heads=2, classes=5)
    x, y = torch.rand(9, 3, 8, 8), torch.arange(9) % 5
    loss = MarginLoss(penalty=Hinge(gamma=6.0), classes="all", probes=1)
    for model in (conv, vit):
        for is_cast in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
                assert margin_backward(model, loss, x, y).method == "split", margin_backward(model, loss, x, y)
