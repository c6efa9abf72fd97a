"""Bad values of arguments, by the kind of the argument, with the types of the errors that they should end in."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemargin.training import TrainingStopped


@dataclass(frozen=True)
class Of:
    """A bad value that is made of a good one."""

    name: str
    make: Callable[[Any], Any]

    def __repr__(self) -> str:
        return self.name


Errors = tuple[type[Exception], ...]
Bad = dict[str, tuple[Callable[[Any], Any], Errors]]


def itself(bad: Any) -> Callable[[Any], Any]:
    """A function that returns `bad`, whatever the good value is."""
    return lambda _: bad


def kind(types: tuple[Any, ...] = (), values: tuple[Any, ...] = (), either: tuple[Any, ...] = ()) -> Bad:
    """Bad values of one kind: those that end in a `TypeError`, in a `ValueError`, or in one of both."""
    found: Bad = {}
    for group, errors in ((types, (TypeError,)), (values, (ValueError,)), (either, (TypeError, ValueError))):
        for bad in group:
            found[repr(bad)] = ((bad if isinstance(bad, Of) else Of(repr(bad), itself(bad))).make, errors)
    return found


# -------------------------------------------------------------------------------------------------------- networks


class Changed(nn.Module):
    """`model` with other scores."""

    def __init__(self, model: nn.Module, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model, self.change = model, change
        self.training = model.training

    def forward(self, x: Tensor) -> Any:
        """The changed scores."""
        return self.change(self.model(x))


class WithoutGradients(Changed):
    """`model` without gradients."""

    @torch.no_grad()
    def forward(self, x: Tensor) -> Any:
        """The scores."""
        return self.model(x)


def with_weight(model: nn.Module, value: float) -> nn.Module:
    """A copy with one weight of that value."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        next(changed.parameters()).view(-1)[0] = value
    return changed


def with_entry(x: Tensor, value: float) -> Tensor:
    """A copy whose last entry has that value."""
    changed = x.detach().clone()
    changed.view(-1)[-1] = value
    return changed


def mix_fourth(scores: Tensor) -> Tensor:
    """Scores of which the fourth depends on the second, without a gradient that says so."""
    moved = torch.zeros_like(scores)
    if len(scores) > 3:
        moved[3] = 0.5 * scores[1].detach()
    return scores + moved


PAIR = torch.tensor([0.1, 0.2])
COMPLEX = Of("complex", lambda x: x.to(torch.complex64))
META = Of("meta", lambda x: x.to("meta"))
SPARSE = Of("sparse", lambda x: x.to_sparse())
NAN = Of("one NaN", lambda x: with_entry(x, math.nan))
INFINITE = Of("one infinity", lambda x: with_entry(x, math.inf))
EMPTY = Of("empty", lambda x: x[:0])
BOOL = Of("bool", lambda x: x > 0.5)
INTEGERS = Of("integers", lambda x: x.long())
NUMBER = Of("one number", lambda x: x.sum())
WIDER = Of("wider", lambda x: torch.cat((x, x), dim=-1))

NO_MODULE = kind((None, "digits", nn.Linear, 3))
NOT_FINITE = kind(
    values=(
        Of("a NaN weight", lambda m: with_weight(m, math.nan)),
        Of("an infinite weight", lambda m: with_weight(m, math.inf)),
    )
)
NO_SCORES = kind(
    (Of("returns None", lambda m: Changed(m, lambda _: None)),),
    (),
    (
        Of("returns one number", lambda m: Changed(m, lambda s: s.sum())),
        Of("returns integers", lambda m: Changed(m, lambda s: s.long())),
    ),
)
NOT_BY_SAMPLE = kind(
    values=(
        Of("mixes", lambda m: Changed(m, lambda s: s - s.mean(0))),
        Of("mixes the fourth", lambda m: Changed(m, mix_fourth)),
        Of("turns round", lambda m: Changed(m, lambda s: s.flip(0))),
    )
)
NO_GRADIENT: Bad = {"no gradient": (lambda m: WithoutGradients(m, nn.Identity()), (ValueError, RuntimeError))}

# ------------------------------------------------------------------------------------------------------- by kind

NO_TENSOR = kind((None, 3, COMPLEX), (), ("abc", {}, META, SPARSE))
NO_ROWS = NO_TENSOR | kind(either=(BOOL, INTEGERS, NUMBER))
NO_INPUTS = NO_ROWS | kind((), (NAN, INFINITE), (EMPTY,))
NO_NUMBER = kind((None, "1", 1j, True, [0.1], PAIR))
NO_COUNT = kind((None, "3", 1.5, True, [3]), (-1,), (math.nan,))
NO_LABELS = NO_TENSOR | kind(
    (BOOL, Of("other kind", lambda y: y.long() if y.is_floating_point() else y.float())),
    (
        Of("short", lambda y: y[:-1]),
        Of("long", lambda y: torch.cat((y, y[:1]))),
        Of("out of range", lambda y: y + 7),
        Of("negative", lambda y: y - 9),
        Of("2d", lambda y: y[:, None]),
    ),
)
NO_DATA = kind(
    (Of("bool labels", lambda d: (d.x, d.y > 0)),),
    (Of("short labels", lambda d: (d.x, d.y[:-1])),),
    (None, 3, "no such data", Of("one tensor", lambda d: d.x)),
)

BAD: dict[str, Bad] = {
    "": {},
    "model": NO_MODULE | NOT_FINITE | NO_SCORES | NOT_BY_SAMPLE | NO_GRADIENT,
    "chain": NO_MODULE | NOT_FINITE,
    "trained": NO_MODULE | NOT_FINITE | NO_SCORES,
    "module": NO_MODULE,
    "x": NO_INPUTS | kind(values=(WIDER,)),
    "rows": NO_INPUTS,
    "scores": NO_INPUTS,
    "one": {name: bad for name, bad in NO_INPUTS.items() if name != "one number"},
    "some rows": NO_ROWS,
    "some tensor": NO_TENSOR,
    "real": NO_TENSOR | kind((), (NAN, INFINITE), (EMPTY,)),
    "samples' x": kind((None, 3), (), ("abc", EMPTY, NUMBER)),
    "labels": NO_LABELS,
    "any labels": {name: NO_LABELS[name] for name in ("None", "3", "'abc'", "{}", "2d")},
    "index": kind(("abc", 3, [0, 1], torch.rand(6)), (), (torch.tensor([0, 1]),)),
    "read": NO_DATA,
    "data": NO_DATA
    | kind(
        (Of("complex", lambda d: (d.x.to(torch.complex64), d.y)),),
        (
            Of("labels out of range", lambda d: (d.x, d.y + 7)),
            Of("empty", lambda d: (d.x[:0], d.y[:0])),
            Of("wider", lambda d: (torch.cat((d.x, d.x), 1), d.y)),
        ),
        (
            Of("sparse", lambda d: (d.x.to_sparse(), d.y)),
            Of("meta", lambda d: (d.x.to("meta"), d.y.to("meta"))),
            Of("no labels", lambda d: (d.x, None)),
        ),
    )
    | {"one NaN": (lambda d: (with_entry(d.x, math.nan), d.y), (ValueError, TrainingStopped))},
    "samples": kind((None, 3, "digits", Of("tensor", lambda d: d.x))),
    "number": NO_NUMBER | kind(values=(math.nan, math.inf)),
    "positive": NO_NUMBER | kind(values=(math.nan, math.inf, -1.0)),
    "p": NO_NUMBER | kind(values=(math.nan, 0.5)),
    "numbers": kind((None, 3, ("1",)), ((math.nan,), (math.inf,), (-1.0,), ())),
    "betas": kind((3,), ((0.9, math.nan), (0.9, 1.5)), ((0.9,),)),
    "target": kind((None, "1"), (math.nan, 0.0, [1.0, 2.0])),
    "weights": kind((3, "abc", ("a", "b", "c")), ((1.0, math.nan, 1.0), (1.0, -1.0, 1.0))),
    "count": NO_COUNT,
    "others": NO_COUNT | kind(("most",), (99,)),
    "counts": kind((None, 3, "ab"), ((0, 2),), ((1.5, 2),)),
    "choice": kind((), ("no such choice",), (3, ["crown"], PAIR)),
    "flag": kind(("yes", 2, PAIR)),
    "seed": kind((None, "1", 0.5, True), (2**70,)),
    "places": kind((3,), (("nowhere",),), ((), (3,), "nowhere")),
    "own places": kind((3,), (), ((), (3,), "nowhere")),
    "place": kind(either=(3, ["input"])),
    "bounds": kind((3, ("0", "1")), ((1.0, 0.0), (0.0, math.nan)), ("ab", (0.0, 0.5, 1.0))),
    "callable": kind((None, 3, "no such name")),
    "name": kind((), ("no such name",), (None, 3, ["digits"])),
    "names": kind((3,), (), ((1, 2),)),
    "text": kind((None, 3)),
    "path": kind((None, 3, [])),
    "several": kind((None, 3), (), (["no"], [None])),
    "iterable": kind((3,)),
    "object": kind((3,), (), ("no such thing",)),
    "some object": kind((3, "no such thing", [0.1])),
    "attack": kind((), ("no attack",), (None, 3)),
}
