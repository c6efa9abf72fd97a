from __future__ import annotations

import collections
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from widemargin.modules import (
    NamedInputs,
    arguments,
    cast_input,
    evaluating,
    floating_parameter,
    forward,
    is_compiled,
    mixing_modules,
    output_shapes,
    predict,
    predicted_labels,
    scores_of,
    unwrap,
    unwrap_ddp,
)


def network() -> nn.Sequential:
    """In training mode, but for its first batch norm and its dropout, which were put to evaluation on purpose."""
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2)))
    network[1].eval()
    network[2].eval()
    return network


def modes(network: nn.Module) -> list[bool]:
    return [module.training for module in network.modules()]


def test_every_module_is_back_in_its_own_mode() -> None:
    model = network()
    before = modes(model)
    assert sorted(before) == [False, False, True, True, True, True]
    with evaluating(model):
        assert not any(modes(model))
    assert modes(model) == before


def test_also_after_an_error() -> None:
    model = network()
    before = modes(model)
    with pytest.raises(RuntimeError, match="inside"), evaluating(model):
        raise RuntimeError("inside")
    assert modes(model) == before


def test_a_network_in_evaluation_mode_stays_there() -> None:
    model = network().eval()
    with evaluating(model):
        pass
    assert not any(modes(model))


def test_a_network_with_a_train_of_its_own() -> None:
    """Some networks override `train` to keep a layer in evaluation: it is not asked on the way back."""

    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def train(self, mode: bool = True) -> Stubborn:
            super().train(mode)
            self.norm.eval()
            return self

    model = Stubborn()
    model.norm.training = True  # the user woke it after all
    with evaluating(model):
        assert not model.norm.training
    assert modes(model) == [True, True]


def test_statistics_do_not_move_inside() -> None:
    model = nn.BatchNorm1d(2)
    with evaluating(model):
        model(torch.randn(5, 2))
    assert model.num_batches_tracked is not None
    assert model.num_batches_tracked.item() == 0


def test_scores_of_every_kind_of_output() -> None:
    scores = torch.randn(2, 3)
    for output in (scores, (scores, None), [scores], {"logits": scores}, SimpleNamespace(logits=scores)):
        assert scores_of(output) is scores
    record = collections.namedtuple("record", ["loss", "logits"])
    assert scores_of(record(torch.zeros(()), scores)) is scores
    assert scores_of(record(scores, None)) is scores
    for other in (None, (), {"scores": scores}, "scores", SimpleNamespace()):
        with pytest.raises(TypeError, match=rf"\b{type(other).__name__}\b"):
            scores_of(other)


class Loop(nn.Module):
    """Layers that run once, twice and never, and one that gives integers."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice, self.never = nn.LSTM(2, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.integers = nn.Flatten(0)

    def forward(self, x: Tensor) -> Tensor:
        self.integers(torch.ones(2, 2).long())
        return self.twice(self.twice(self.once(x.transpose(0, 1))[0].transpose(0, 1)))[:, 0]


def test_shapes_of_the_outputs_of_modules() -> None:
    model = Loop()
    found = output_shapes(model, torch.zeros(5, 4, 2), ["once", "twice", "never", "integers"])
    assert found == {"once": [(4, 5, 3)], "twice": [(5, 4, 3)] * 2, "never": [], "integers": [None]}
    assert all(module.training and not module._forward_hooks for module in model.modules())


def test_what_a_network_cannot_take_is_one_line() -> None:
    for model, x in ((nn.Linear(2, 3), torch.zeros(1, 5)), (nn.Embedding(3, 2), torch.tensor([[1, 7]]))):
        with pytest.raises(
            ValueError, match=r"^x has shape \[1, \d\] and dtype .*, which the network can't take: [^\n]+$"
        ):
            forward(model, x)


def test_unwrap_takes_every_wrapper_off() -> None:
    model = network()
    assert unwrap(model) is unwrap_ddp(model) is model
    parallel = nn.DataParallel(model)
    compiled = cast(nn.Module, torch.compile(parallel, backend="eager"))
    assert unwrap(compiled) is unwrap(parallel) is model
    assert unwrap_ddp(compiled) is compiled
    assert is_compiled(compiled)
    assert not is_compiled(parallel)


def test_predict_runs_in_evaluation_mode_without_gradients() -> None:
    model = network()
    before = modes(model)
    x = torch.randn(5, 2)
    scores = predict(model, x.double(), batch_size=2)
    assert not scores.requires_grad
    assert modes(model) == before
    torch.testing.assert_close(scores, model.eval()(x))


def test_predicted_labels_are_classes_or_signs() -> None:
    assert predicted_labels(torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])).tolist() == [1, 0]
    assert predicted_labels(torch.tensor([2.0, -1.0, 0.0])).tolist() == [1, -1, -1]
    assert predicted_labels(torch.tensor([[2.0], [-1.0]])).tolist() == [1, -1]


class Named(nn.Module):
    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.stack([tokens.sum(1), (tokens if mask is None else tokens * mask).sum(1)], dim=1)


class Anything(nn.Module):
    def forward(self, **tensors: Tensor) -> Tensor:
        return torch.stack([tensor.sum(1) for tensor in tensors.values()], dim=1)


def test_inputs_by_name() -> None:
    tokens, mask = torch.arange(6.0).view(3, 2), torch.tensor([[1.0, 0.0]]).repeat(3, 1)
    inputs: Any = NamedInputs({"mask": mask, "unknown": mask, "tokens": tokens})
    assert len(inputs) == 3
    assert torch.equal(forward(Named(), inputs), Named()(tokens, mask))
    for rows in (slice(0, 2), torch.tensor([2, 0])):
        assert torch.equal(forward(Named(), inputs[rows]), Named()(tokens, mask)[rows])
    assert torch.equal(forward(Named(), inputs[1]), Named()(tokens, mask)[1:2])
    assert [one["tokens"].tolist() for one in inputs] == [[row] for row in tokens.tolist()]
    with pytest.raises(IndexError, match=r"3 samples.* -4"):
        inputs[-4]
    assert torch.equal(inputs[-1]["tokens"], tokens[-1:])
    assert arguments(Named(), inputs).keys() == ["tokens", "mask"]  # type: ignore[attr-defined]
    assert forward(Anything(), inputs).shape == (3, 3)
    one: Any = NamedInputs({"image": tokens})
    assert torch.equal(forward(nn.Identity(), one), tokens)  # a network that does not know the name
    with pytest.raises(TypeError, match=r"inputs a, b.*Named: tokens, mask"):
        forward(Named(), cast("Any", NamedInputs({"a": mask, "b": mask})))
    with pytest.raises(ValueError, match=r"lengths \{'a': 3, 'b': 1\}"):
        NamedInputs({"a": mask, "b": mask[:1]})
    half = cast_input(nn.Linear(2, 2).half(), inputs)
    assert half["tokens"].dtype == torch.float16  # type: ignore[index]


def test_inputs_take_the_dtype_of_the_parameters() -> None:
    model = nn.Linear(2, 2, dtype=torch.float64)
    assert cast_input(model, torch.zeros(1, 2)).dtype == torch.float64
    assert cast_input(model, torch.zeros(1, 2, dtype=torch.int64)).dtype == torch.int64
    assert cast_input(nn.ReLU(), torch.zeros(1, 2)).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert cast_input(model, torch.zeros(1, 2)).dtype == torch.float32


def test_the_first_floating_parameter() -> None:
    counts = nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False)
    model = nn.ParameterDict({"counts": counts, "weight": nn.Parameter(torch.zeros(2))})
    assert floating_parameter(model) is model["weight"]
    assert floating_parameter(nn.ReLU()) is None


def test_modules_that_mix_samples() -> None:
    assert mixing_modules(network()) == ["3.0"]
    assert mixing_modules(network().eval()) == []
    assert mixing_modules(nn.BatchNorm1d(2, track_running_stats=False).eval()) == [""]
