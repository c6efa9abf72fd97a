"""Schema of the results of studies (`results/<ID>.json`) that the pages show. Other entries are not read."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from widemargin._io.typed_json import Json, Length, Pattern, below, check_type
from widemargin.report.schema import Amount, Count

StudyId = Annotated[str, Pattern("[A-Z]{1,3}[0-9]{1,3}", "the name of a study, such as E3")]
Value: TypeAlias = float | int | str | bool | None
DeadCounts: TypeAlias = dict[str, Annotated[list[Count], Length(2)]]
"""Arm → seeds that ended at guessing, and all."""


class StudyClaim(TypedDict):
    """A claim with the paper's number and ours; None: an order, or not measured."""

    text: str
    reported: float | None
    measured: float | None
    tolerance: float | None
    sd: float | None
    verdict: str
    why: str
    word: NotRequired[str]
    side: NotRequired[str]
    unit: NotRequired[str]
    quote: NotRequired[str]
    ours: NotRequired[bool]
    dead: NotRequired[DeadCounts]


class StudyFigure(TypedDict):
    """A chart of the rows, see `studies.schema.Figure`."""

    title: str
    kind: Literal["lines", "bars", "scatter"]
    x: str
    y: str
    x_title: NotRequired[str]
    y_title: NotRequired[str]
    where: NotRequired[dict[str, Json]]
    arms: NotRequired[list[str] | None]
    split: NotRequired[str | None]
    percent: NotRequired[bool]
    log_x: NotRequired[bool]
    log_y: NotRequired[bool]


class StudyArm(TypedDict):
    """An arm; `ours`: the paper does not have it."""

    name: str
    ours: NotRequired[bool]


class StudyMachine(TypedDict):
    """A machine that trials ran on."""

    gpu: NotRequired[str]
    cpus: NotRequired[int | None]
    machine: NotRequired[str]


class StudyOrigin(TypedDict):
    """Where trials come from."""

    commit: NotRequired[str | None]
    hardware: NotRequired[StudyMachine]


class StudyCell(TypedDict):
    """A cell of a search, and where it was searched; its score has the name `by` of the search."""

    at: NotRequired[str]
    cell: dict[str, Json]
    died: NotRequired[Count]
    seeds: NotRequired[Count]


class StudySearch(TypedDict):
    """The search of hyperparameters."""

    cells: Count
    by: NotRequired[str]
    table: NotRequired[list[StudyCell]]


class StudyShare(TypedDict):
    """How many claims there are, ran, and are reproduced or hold in direction."""

    of: Count
    ran: Count
    hold: Count


class StudyVerdict(TypedDict):
    """A verdict of an earlier release."""

    verdict: str


class StudyEntry(TypedDict):
    """What the scoreboard shows; of a study that was not run there is only this."""

    study: StudyId
    source: str
    title: str
    question: str
    scale: Literal["smoke", "quick", "budget", "paper"] | None
    verdict: str
    word: NotRequired[str]
    weakest: NotRequired[str]
    share: NotRequired[StudyShare]
    dead: NotRequired[DeadCounts]
    counts: NotRequired[dict[str, Count]]
    claims: list[StudyClaim]
    command: str
    origins: NotRequired[list[StudyOrigin]]


_Spaced = TypedDict(  # keys that are no names in Python
    "_Spaced",
    {
        "scale note": str,
        "trial minutes": Amount,
        "dead trials": NotRequired[list[dict[str, Value]]],
        "old verdict": NotRequired[StudyVerdict],
    },
)


class StudyFile(StudyEntry, _Spaced):
    """A result file: the entry, and what the page of the study shows."""

    complete: bool
    deviations: list[str]
    seeds: list[Count]
    search: StudySearch
    chosen: dict[str, dict[str, Json]]
    arms: list[StudyArm]
    figures: list[StudyFigure]
    trials: Count
    rows: list[dict[str, Value]]
    paper: NotRequired[list[dict[str, Value]]]


class _JudgedClaim(TypedDict):
    word: str
    se: float | None
    seeds: Count


class _OfArm(TypedDict):
    arm: str
    seed: NotRequired[int]


class _Judged(TypedDict):
    """What every verdict of this release has."""

    word: str
    share: StudyShare
    claims: list[_JudgedClaim]


def check_study(result: Json, name: str, *, judged: bool = False) -> None:
    """Raise a `ValueError` that names the first entry below `name` that does not fit `StudyFile`.

    A result without rows is checked as a `StudyEntry`. One without `word` is of an earlier release, which
    `judged` refuses.
    """
    has_rows = isinstance(result, dict) and "rows" in result
    check_type(result, StudyFile if has_rows else StudyEntry, name, unknown=True)
    if judged or "word" in result:
        check_type(result, _Judged, name, unknown=True)
    if has_rows:
        _check_rows(result, name)


def _check_rows(result: Json, name: str) -> None:
    """Check what the types do not say: rows, ours and the paper's, have an arm, and cells of a search a number."""
    for part in ("rows", "paper"):
        for i, row in enumerate(result.get(part, [])):
            with below(f"{name}.{part}[{i}]"):
                check_type(row, _OfArm, "", unknown=True)
    by = result["search"].get("by", "")
    for i, row in enumerate(result["search"].get("table", [])):
        check_type(row.get(by), float | None, f"{name}.search.table[{i}].{by}")
