"""What the report reads: a result as plain values, the ones that JSON knows.

A result has one arm per network. Everything but the title and the arms may be missing, and a page shows only what is
there. The demo writes several arms, `widemargin train` and `widemargin measure` one.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypeAlias, TypedDict


class Density(TypedDict):
    """A margin distribution that was summarised elsewhere: the density at the points of a grid, and statistics."""

    grid: list[float]
    density: list[float]
    count: int
    mean: float
    std: float
    share_negative: float


Margins: TypeAlias = "list[float | None] | Density"
"""One number per sample, None where a sample has no margin (a zero gradient); or a density."""


class Attacked(TypedDict):
    """Accuracy on inputs that were moved by `epsilon`."""

    epsilon: float
    accuracy: float


class Robust(TypedDict):
    """Accuracy in balls of radius `epsilon`: the share that is proved, and the share that an attack left."""

    epsilon: float
    certified: float
    attacked: float


class Bracketed(TypedDict):
    """Distances of samples, an entry each: certified, attacked (None: nothing found; 0: misclassified), linearised."""

    lower: list[float]
    upper: list[float | None]
    linearized: list[float | None]
    band: list[Robust]


class Sized(TypedDict):
    """Accuracy of a network trained on `samples` samples."""

    samples: int
    accuracy: float


Row: TypeAlias = "dict[str, float | int | str | None]"
"""One moment of a training run, as the history of `fit` writes it: `epoch`, `split` ("train" or "validation"), and what
is known of that part: `loss`, `accuracy`, and the mean `distance at …` each place. Other numbers are not shown."""


class Hard(TypedDict):
    """A sample of small margin."""

    index: int
    label: int | str
    prediction: int | str
    margin: float | None
    image: NotRequired[Any]  # [h][w], [1][h][w] or [3][h][w] of numbers in [0, 1]; or a PNG as a data URI


class Arm(TypedDict):
    """One network and what was measured on it; `name` is its key, `label` what is shown (by default the name)."""

    name: str
    label: NotRequired[str]
    note: NotRequired[str]
    samples: NotRequired[int]
    accuracy: NotRequired[float | None]
    margins: NotRequired[dict[str, Margins]]
    curve: NotRequired[list[Attacked]]
    bracket: NotRequired[Bracketed]
    sizes: NotRequired[list[Sized]]
    history: NotRequired[list[Row]]
    hardest: NotRequired[list[Hard]]
    seconds: NotRequired[float]


class Attack(TypedDict, total=False):
    """What moved the inputs of the curves: `name`, the norm of ε, how many samples, and the ε shown in the table."""

    name: str
    norm: str
    samples: int
    shown: list[float]


class Result(TypedDict):
    """A page's worth of results. `norm` is that of the margins, as shown: "l_2"."""

    title: str
    arms: list[Arm]
    subtitle: NotRequired[str]
    norm: NotRequired[str]
    attack: NotRequired[Attack]
    settings: NotRequired[dict[str, Any]]
    versions: NotRequired[dict[str, Any]]
    hardware: NotRequired[dict[str, Any]]
