"""Schema of the results and of the pictures of planes that the report reads: plain values, as JSON has them.

A result has one arm per network. Only the title and the arms are required, and a page shows only the entries given. The
demo writes several arms, `widemargin train` and `widemargin measure` one.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from widemargin._io.typed_json import Json as Json
from widemargin._io.typed_json import Length, Limits, Pattern

PNG = Pattern("data:image/png;base64,[A-Za-z0-9+/]+={0,2}", "'data:image/png;base64,…' or rows of numbers in [0, 1]")
"""An image as a data URI."""

Share = Annotated[float, Limits(0, 1)]
Amount = Annotated[float, Limits(0)]
Count = Annotated[int, Limits(0)]


class Density(TypedDict):
    """A margin distribution given as a density on a grid, with statistics."""

    grid: list[float]
    density: list[Amount]
    count: Count
    mean: float
    std: Amount
    share_negative: Share


Margins: TypeAlias = list[float | None] | Density
"""One number per sample, None where a sample has no margin (a zero gradient); or a density."""


class Attacked(TypedDict):
    """Accuracy on inputs perturbed by `epsilon`."""

    epsilon: Amount
    accuracy: Share


class Robust(TypedDict):
    """Accuracy in balls of radius `epsilon`: the certified share, and the share that withstands an attack."""

    epsilon: Amount
    certified: Share
    attacked: Share


class Bracketed(TypedDict):
    """Distances of samples, an entry each: certified, attacked (None: nothing found; 0: misclassified), linearised."""

    lower: list[Amount]
    upper: list[Amount | None]
    linearized: list[float | None]
    band: list[Robust]


class Sized(TypedDict):
    """Accuracy of a network trained on `samples` samples."""

    samples: Annotated[int, Limits(1)]
    accuracy: Share


Row: TypeAlias = dict[str, float | int | str | None]
"""A row of the history of `fit`: `epoch`, `split` ("train" or "validation"), and of that split the `loss`, `accuracy`
and mean `distance at …` each place. Other numbers are not shown."""


class Moment(TypedDict):
    """The entries of a `Row` that are checked."""

    epoch: Amount
    split: Literal["train", "validation"]
    accuracy: NotRequired[Share | None]


class Hard(TypedDict):
    """A sample of small margin."""

    index: Count
    label: int | str
    prediction: int | str
    margin: float | None
    image: NotRequired[Annotated[Json, PNG]]  # a PNG as a data URI, or numbers in [0, 1], see `png.Image`


class Seeded(TypedDict):
    """One of the networks of an arm: its seed, accuracy, mean margin at the first place, and curve."""

    seed: Count
    accuracy: Share
    margin: float | None
    curve: list[Attacked]


class ArmResult(TypedDict):
    """One network and its measurements; `name` is its key, `label` is shown (by default the name).

    With `seeds` it is several networks, and the other entries are their means, or the margins of all of them.
    """

    name: str
    label: NotRequired[str]
    note: NotRequired[str]
    samples: NotRequired[Count]
    accuracy: NotRequired[Share | None]
    margins: NotRequired[dict[str, Margins]]
    curve: NotRequired[list[Attacked]]
    bracket: NotRequired[Bracketed]
    sizes: NotRequired[list[Sized]]
    history: NotRequired[list[Row]]
    hardest: NotRequired[list[Hard]]
    seeds: NotRequired[list[Seeded]]
    seconds: NotRequired[Amount]


class AttackInfo(TypedDict, total=False):
    """The attack behind the curves: its `name`, the norm of ε, the number of samples, and the ε shown in the table."""

    name: str
    norm: str
    samples: Count
    shown: list[Amount]


class Result(TypedDict):
    """The results of one page.

    `norm` is that of the margins, as shown: "l_2". `subject` names the arm that the headline compares with the first.
    `validation` says which samples the validation rows of the histories are of, by default "validation".
    """

    title: str
    arms: list[ArmResult]
    subtitle: NotRequired[str]
    norm: NotRequired[str]
    subject: NotRequired[str]
    validation: NotRequired[Literal["validation", "test"]]
    attack: NotRequired[AttackInfo]
    settings: NotRequired[dict[str, Json]]
    versions: NotRequired[dict[str, Json]]
    hardware: NotRequired[dict[str, Json]]


Pair: TypeAlias = Annotated[list[float], Length(2)]
Four: TypeAlias = Annotated[list[float], Length(4)]


class Part(TypedDict):
    """A convex polygon of one class. `slope`: the largest singular value of the network's Jacobian there."""

    corners: list[Pair]
    label: int
    slope: NotRequired[float]


class Point(TypedDict):
    """A sample. `group` names its kind, the first kind is drawn larger; `image` is a PNG as a data URI."""

    x: float
    y: float
    label: int
    group: NotRequired[str]
    note: NotRequired[str]
    image: NotRequired[Annotated[str, PNG]]


class Curve(TypedDict):
    """A line through points; curves of one name share a colour and a dash."""

    name: str
    points: list[Pair]


class Panel(TypedDict):
    """A plane. `box` is (left, right, bottom, top); labels are indices into `classes`.

    Regions are either `parts`, polygons with outlines where `outlines` is true, or `runs`, rows of a raster as (left,
    right, bottom, top, label). `boundary` holds segments (x, y, x, y), `ellipses` closed lines.
    """

    title: str
    text: str
    box: Four
    classes: list[str]
    axes: NotRequired[list[str]]
    outlines: NotRequired[bool]
    parts: NotRequired[list[Part]]
    runs: NotRequired[list[Annotated[list[float], Length(5)]]]
    boundary: NotRequired[list[Four]]
    ellipses: NotRequired[list[list[Pair]]]
    points: NotRequired[list[Point]]
    curves: NotRequired[list[Curve]]


class Picture(TypedDict):
    """Panels with a title, and their settings, versions and hardware."""

    title: str
    subtitle: str
    panels: list[Panel]
    settings: NotRequired[dict[str, Json]]
    versions: NotRequired[dict[str, Json]]
    hardware: NotRequired[dict[str, Json]]
