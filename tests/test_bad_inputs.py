"""Thousands of bad inputs: each gets the documented error, in one sentence, and never a number."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from widemargin import margins, norms, places
from widemargin.margins.output import differences

EXAMPLES = 2100
NETWORK = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 4))
X = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.5, 1.5]])

Case = tuple[Callable[[], Any], type[Exception], str]
Draw = st.DrawFn


def watched() -> tuple[Tensor, places.At]:
    with places.watch(NETWORK, ("input",)) as at:
        scores = NETWORK(X)
    return scores, at


def margin(draw: Draw, scores: Any, labels: Any) -> Callable[[], Any]:
    """A call of one of the functions that take scores and labels."""
    _, at = watched()
    calls: list[Callable[[], Any]] = [
        lambda: margins.output(scores, labels),
        lambda: differences(scores, labels, classes="all", read_as="softmax"),
        lambda: margins.distance(scores, labels, at=at),
        lambda: margins.linearize(scores, labels, at=at, p=1.0, classes="all"),
    ]
    return draw(st.sampled_from(calls))


def numbers(draw: Draw, *shape: int) -> Tensor:
    """Finite scores of a shape, of any floating dtype."""
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    return torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 2**16)))).to(dtype)


def batch_and_classes(draw: Draw) -> tuple[int, int]:
    return draw(st.integers(1, 6)), draw(st.integers(2, 7))


def indices(draw: Draw, batch: int, classes: int) -> Tensor:
    return torch.tensor(draw(st.lists(st.integers(0, classes - 1), min_size=batch, max_size=batch)))


# ---------------------------------------------------------------------------------------------------------------- kinds


def label_out_of_range(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    labels, index = indices(draw, batch, classes), draw(st.integers(0, batch - 1))
    bad = draw(st.one_of(st.integers(classes, 10_000), st.integers(-10_000, -1)))
    labels[index] = bad
    return margin(draw, numbers(draw, batch, classes), labels), ValueError, rf"^y has {bad} at index {index}\b"


def sign_out_of_range(draw: Draw) -> Case:
    batch = draw(st.integers(1, 6))
    labels = torch.tensor(draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=batch, max_size=batch)))
    index = draw(st.integers(0, batch - 1))
    bad = draw(st.one_of(st.sampled_from([0.0, 2.0, math.nan, math.inf, -math.inf]), st.floats(-0.9, 0.9)))
    labels[index] = bad
    scores = numbers(draw, batch, 1) if draw(st.booleans()) else numbers(draw, batch)
    return margin(draw, scores, labels), ValueError, rf"^y has \S+ at index {index}\b"


def indices_with_one_score(draw: Draw) -> Case:
    batch = draw(st.integers(1, 6))
    scores = numbers(draw, batch, 1) if draw(st.booleans()) else numbers(draw, batch)
    dtype = draw(st.sampled_from([torch.uint8, torch.int32, torch.int64, torch.bool]))
    labels = indices(draw, batch, 2).to(dtype)
    return margin(draw, scores, labels), TypeError, rf"^y has dtype {dtype}\b"


def labels_of_another_dtype(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    dtype = draw(st.sampled_from([torch.float16, torch.float32, torch.float64, torch.bool, torch.complex64]))
    labels = indices(draw, batch, classes).to(dtype)
    return margin(draw, numbers(draw, batch, classes), labels), TypeError, rf"^y has dtype {dtype}\b"


def scores_of_another_dtype(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    dtype = draw(st.sampled_from([torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64]))
    return (
        margin(draw, numbers(draw, batch, classes).to(dtype), indices(draw, batch, classes)),
        TypeError,
        rf"^scores has dtype {dtype}",
    )


def scores_of_another_shape(draw: Draw) -> Case:
    shape = draw(st.one_of(st.just([]), st.lists(st.integers(1, 3), min_size=3, max_size=5)))
    scores = numbers(draw, *shape)
    return (
        margin(draw, scores, torch.tensor([0])),
        ValueError,
        rf"^scores has shape {re.escape(str(shape))}",
    )


def labels_of_another_shape(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    shape = draw(st.one_of(st.just([]), st.lists(st.integers(1, 3), min_size=2, max_size=4)))
    labels = torch.zeros(shape, dtype=torch.long)
    sentence = rf"^y has shape {re.escape(str(shape))}"
    return margin(draw, numbers(draw, batch, classes), labels), ValueError, sentence


def labels_of_another_length(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    other = draw(st.integers(0, 9).filter(lambda n: n != batch))
    labels = indices(draw, other, classes).long()
    sentence = rf"^y has {other} entries.* {batch} samples"
    return margin(draw, numbers(draw, batch, classes), labels), ValueError, sentence


def not_finite(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    scores, index = numbers(draw, batch, classes), draw(st.integers(0, batch - 1))
    bad = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    scores[index, draw(st.integers(0, classes - 1))] = bad
    sentence = f"^scores has {bad} at index {index}"
    return margin(draw, scores, indices(draw, batch, classes)), ValueError, sentence


def empty(draw: Draw) -> Case:
    shape = draw(st.sampled_from([(0,), (0, 1), (0, 5), (3, 0)]))
    labels = torch.zeros(shape[0], dtype=draw(st.sampled_from([torch.long, torch.float32])))
    sentence = "^scores is an empty batch" if shape[0] == 0 else "^scores has no classes"
    return margin(draw, numbers(draw, *shape), labels), ValueError, sentence


def no_tensor(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    scores, labels = numbers(draw, batch, classes).float(), indices(draw, batch, classes)
    turn = draw(st.sampled_from([lambda t: t.tolist(), lambda t: t.numpy(), lambda _: None, lambda _: "digits"]))
    kind = type(turn(scores)).__name__
    if draw(st.booleans()):
        return margin(draw, turn(scores), labels), TypeError, rf"^scores is a {kind}"
    return margin(draw, scores, turn(labels)), TypeError, rf"^y is a {kind}"


def p_below_one(draw: Draw) -> Case:
    p = draw(st.one_of(st.floats(max_value=1, exclude_max=True), st.just(math.nan), st.integers(-9, 0)))
    return with_p(draw, p), ValueError, rf"^p is {re.escape(str(p))}"


def p_that_is_no_number(draw: Draw) -> Case:
    p = draw(st.sampled_from([True, False, None, "2", "inf", 2j, (2,), [2.0], torch.tensor(2.0), np.ones(1)]))
    return with_p(draw, p), TypeError, rf"^p is {re.escape(repr(p))}"


def with_p(draw: Draw, p: Any) -> Callable[[], Any]:
    scores, at = watched()
    labels = torch.tensor([0, 1, 2])
    calls: list[Callable[[], Any]] = [
        lambda: norms.dual(p),
        lambda: norms.lp(X, p),
        lambda: margins.distance(scores, labels, at=at, p=p),
        lambda: margins.measure(NETWORK, (X, labels), p=p),
    ]
    return draw(st.sampled_from(calls))


def unknown_place(draw: Draw) -> Case:
    known = {"input", "output", "0", "1", "2"}
    name = draw(st.one_of(st.text(max_size=8), st.integers(), st.none()).filter(lambda name: name not in known))
    before = draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=2))
    sentence = rf"^at has {re.escape(repr(name))}"
    return with_places(draw, (*before, name)), ValueError, sentence


def places_in_another_form(draw: Draw) -> Case:
    name = draw(st.sampled_from(["input", "output", "0", "1"]))
    at, error, sentence = draw(
        st.sampled_from(
            [
                (name, TypeError, rf"^at is '{name}'"),
                ((), ValueError, "^at is empty"),
                ([], ValueError, "^at is empty"),
                ((name, "2", name), ValueError, f"^at has '{name}' twice"),
            ]
        )
    )
    return with_places(draw, at), error, sentence


def with_places(draw: Draw, at: Any) -> Callable[[], Any]:
    def watch() -> None:
        with places.watch(NETWORK, at):
            NETWORK(X)

    return draw(st.sampled_from([watch, lambda: margins.measure(NETWORK, (X, torch.tensor([0, 1, 2])), at=at)]))


def no_module(draw: Draw) -> Case:
    model: Any = draw(st.sampled_from([None, "elsayed-mnist-cnn", len, 3, X, nn.Linear]))

    def watch() -> None:
        with places.watch(model, ("input",)):
            pass

    call = draw(st.sampled_from([watch, lambda: margins.measure(model, (X, torch.tensor([0, 1, 2])))]))
    return call, TypeError, rf"^model is a {type(model).__name__}"


def classes_out_of_range(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    count = draw(st.one_of(st.integers(max_value=0), st.integers(min_value=classes)))
    scores, labels = numbers(draw, batch, classes), indices(draw, batch, classes)
    sentence = f"classes is {count}, but scores have {classes - 1} other classes (1..{classes - 1})"
    return with_options(draw, scores, labels, classes=count), ValueError, f"^{re.escape(sentence)}$"


def classes_of_another_kind(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    count = draw(st.one_of(st.booleans(), st.floats(), st.text(max_size=4).filter(lambda t: t != "all"), st.none()))
    scores, labels = numbers(draw, batch, classes), indices(draw, batch, classes)
    sentence = rf"^classes is {re.escape(repr(count))}"
    return with_options(draw, scores, labels, classes=count), TypeError, sentence


def several_classes_of_a_binary_network(draw: Draw) -> Case:
    batch, count = draw(st.integers(1, 6)), draw(st.integers(2, 99))
    sentence = rf"^classes is {count}\b"
    return with_options(draw, numbers(draw, batch), torch.ones(batch), classes=count), ValueError, sentence


def unknown_reading(draw: Draw) -> Case:
    batch, classes = batch_and_classes(draw)
    reading = draw(st.one_of(st.text(max_size=8), st.none(), st.integers()))
    scores, labels = numbers(draw, batch, classes), indices(draw, batch, classes)
    sentence = rf"^read_as is {re.escape(repr(reading))}"
    return with_options(draw, scores, labels, read_as=reading), ValueError, sentence


def with_options(draw: Draw, scores: Tensor, labels: Tensor, **how: Any) -> Callable[[], Any]:
    _, at = watched()
    calls: list[Callable[[], Any]] = [
        lambda: differences(scores, labels, **how),
        lambda: margins.distance(scores, labels, at=at, **how),
        lambda: margins.linearize(scores, labels, at=at, **how),
    ]
    return draw(st.sampled_from(calls))


def unknown_aggregate(draw: Draw) -> Case:
    scores, at = watched()
    aggregate: Any = draw(st.one_of(st.text(max_size=8), st.none(), st.integers()))
    sentence = rf"^aggregate is {re.escape(repr(aggregate))}"
    labels = torch.tensor([0, 1, 2])
    return lambda: margins.distance(scores, labels, at=at, aggregate=aggregate), ValueError, sentence


def not_watched(draw: Draw) -> Case:
    scores, _ = watched()
    at: Any = draw(st.sampled_from([None, "input", ("input",), {"input": X}, X]))
    sentence = r"^at is .*places\.watch"
    return lambda: margins.distance(scores, torch.tensor([0, 1, 2]), at=at), TypeError, sentence


def labels_of_a_data_set(draw: Draw) -> Case:
    """Through `measure`, whose sentences are the same."""
    labels = indices(draw, 3, 4)
    index, bad = draw(st.integers(0, 2)), draw(st.one_of(st.integers(4, 99), st.integers(-99, -1)))
    labels[index] = bad
    return lambda: margins.measure(NETWORK, (X, labels)), ValueError, rf"^y has {bad} at index {index}\b"


KINDS: dict[str, Callable[[Draw], Case]] = {
    kind.__name__: kind
    for kind in (
        label_out_of_range,
        sign_out_of_range,
        indices_with_one_score,
        labels_of_another_dtype,
        scores_of_another_dtype,
        scores_of_another_shape,
        labels_of_another_shape,
        labels_of_another_length,
        not_finite,
        empty,
        no_tensor,
        p_below_one,
        p_that_is_no_number,
        unknown_place,
        places_in_another_form,
        no_module,
        classes_out_of_range,
        classes_of_another_kind,
        several_classes_of_a_binary_network,
        unknown_reading,
        unknown_aggregate,
        not_watched,
        labels_of_a_data_set,
    )
}


@st.composite
def bad_inputs(draw: Draw) -> tuple[str, Case]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    return kind, KINDS[kind](draw)


@pytest.mark.usefixtures("untyped")
def test_bad_inputs() -> None:
    seen: Counter[str] = Counter()

    @given(bad_inputs())
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    def refused(bad: tuple[str, Case]) -> None:
        kind, (call, error, sentence) = bad
        with pytest.raises(error) as raised:
            call()
        assert type(raised.value) is error, kind
        assert re.search(sentence, str(raised.value)), (kind, str(raised.value))
        assert "\n" not in str(raised.value)
        seen[kind] += 1

    refused()
    assert set(seen) == set(KINDS)
    assert seen.total() >= 2000
