"""Runs of studies: search, choice on validation data, final trials, claims, and a result of plain values."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from widemargin._io.locks import Claims
from widemargin._io.progress import track
from widemargin._io.provenance import provenance
from widemargin.studies import engines, result
from widemargin.studies.dead_seeds import is_dead
from widemargin.studies.expand import Case, StudyPlan, first_cells
from widemargin.studies.schema import SCALES, ScaleName, Study
from widemargin.studies.settings import Settings, SettingsDict
from widemargin.studies.store import Store
from widemargin.studies.trial import Claim, Trial, TrialContext
from widemargin.studies.workers import Done

POLL = 0.5
"""Seconds between looks at trials that another process runs."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How much is left to do: trials, those already done, and minutes; `measured` says where the minutes come from."""

    search: int
    final: int
    done: int
    minutes: float
    measured: bool


def run(
    study: Study,
    scale: ScaleName,
    *,
    folder: Path = Path("runs/studies"),
    context: TrialContext | None = None,
    seeds: int | None = None,
    engine: engines.Engine = engines.one_by_one,
    minutes: float | None = None,
    earlier: result.Result | None = None,
    progress: bool | None = None,
    log: Callable[[str], object] = lambda _: None,
) -> result.Result:
    """Run what is not yet done, and return the result as plain values (see `result.of`).

    Several processes, on one machine or on several that share `folder`, share the trials: each is run once.

    Args:
        study: what to run.
        scale: how much of it.
        folder: where finished trials are kept, in `<ID>.jsonl`; they are not run again, in no study that has them.
        context: device, data root and the folder of weights that trials share.
        seeds: final seeds, instead of the scale's.
        engine: how trials are run, see `engines`.
        minutes: start no trial after so many; the result then says that it is not complete.
        earlier: a stored result, whose trials are not run again either: to add seeds on a machine without `folder`.
        progress: show a bar with the time left; by default on a terminal only.
        log: is told that this process waits for trials that another one runs.
    """
    plan = plan_of(study, scale, seeds)
    store = Store(folder / f"{study.id}.jsonl")
    for record in () if earlier is None else result.finished(earlier):
        if record["key"] not in store.records:
            store.take(record)
    context = TrialContext() if context is None else context
    until = None if minutes is None else time.monotonic() + 60 * minutes
    machine = provenance(context.device)
    origin = {key: machine[key] for key in ("commit", "versions", "hardware")}

    def do(trials: Sequence[Trial], what: str) -> bool:
        store.borrow(trials)
        left = [trial for trial in {trial.key: trial for trial in trials}.values() if trial not in store]
        with _Shared(store) as shared:
            while left:
                shared.refused = 0
                done = _until(engine, left, context, until, shared.claim)
                for trial, row, seconds in track(done, f"{study.id} {what}", total=len(left), progress=progress):
                    store.add(trial, row, seconds, origin)
                    shared.claims.release(trial.key)
                store.refresh()
                left = [trial for trial in left if trial not in store]
                if not left or not shared.refused or _is_over(until):
                    break
                shared.wait(log, f"{study.id}: another process runs the last {len(left)} trials of the {what}, waiting")
        return all(trial in store for trial in trials)

    searched: list[SettingsDict] = []
    chosen: dict[str, SettingsDict] = {}
    finals: list[tuple[Case, Trial]] = []
    searches = plan.searches()
    complete = do(searches, "search")
    if complete:
        chosen, searched = choose(plan, store)
        finals = [(case, trial) for case in plan.cases() for trial in plan.final(case, chosen)]
        complete = do([trial for _, trial in finals], "final")
    used = dict.fromkeys(trial.key for trial in [*searches, *(trial for _, trial in finals)] if trial in store)
    return result.of(
        plan,
        rows=[(case.arm.name, trial, store[trial]) for case, trial in finals if trial in store],
        records=[store.records[key] for key in used],
        chosen=chosen,
        searched=searched,
        complete=complete,
    )


def plan_of(study: Study, scale: ScaleName, seeds: int | None = None) -> StudyPlan:
    """The study at one of its scales."""
    if scale not in SCALES:
        raise ValueError(f"scale is {scale!r}, expected one of {', '.join(SCALES)}")
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds is {seeds}, expected at least 1")
    return StudyPlan(study=study, name=scale, seeds=study.scales[scale].seeds if seeds is None else seeds)


def choose(plan: StudyPlan, store: Store) -> tuple[dict[str, SettingsDict], list[SettingsDict]]:
    """The cell of every case with the best mean of `choose_by` over the search seeds, the first one among equals.

    A cell is refused where one of its search seeds died (see `dead_seeds`), unless one did in every cell. Only rows of
    the search stage are used; they hold no results on test data.
    """
    chosen: dict[str, SettingsDict] = {}
    table: dict[str, list[SettingsDict]] = {}
    for case in plan.cases():
        at = plan.searched(case)
        if at is None:
            chosen[case.name] = plan.cells(case.arm)[0]
            continue
        if at.name not in table:
            table[at.name] = [_searched(plan, store, at, cell, trials) for cell, trials in plan.search(at)]
        chosen[case.name] = _best(table[at.name], plan.study)
    return chosen, [row for rows in table.values() for row in rows]


def _searched(plan: StudyPlan, store: Store, at: Case, cell: SettingsDict, trials: Sequence[Trial]) -> SettingsDict:
    """A cell of the search: the mean of `choose_by`, and how many of its seeds died."""
    values = [_metric(store[trial], plan.study) for trial in trials]
    known = [value for value in values if value is not None]
    score = statistics.fmean(known) if len(known) == len(values) else None
    died = sum(is_dead(dict(store[trial]), plan.study.classes) for trial in trials)
    return {"at": at.name, "cell": cell, plan.study.choose_by: score, "died": died, "seeds": len(trials)}


def _best(rows: Sequence[SettingsDict], study: Study) -> SettingsDict:
    sign = -1.0 if study.smallest else 1.0
    living = [row for row in rows if not row["died"]] or rows
    scores = [row[study.choose_by] for row in living]
    best = max(range(len(scores)), key=lambda i: (-float("inf") if scores[i] is None else sign * scores[i], -i))
    cell: SettingsDict = living[best]["cell"]
    return cell


def estimate(plan: StudyPlan, folder: Path = Path("runs/studies")) -> Estimate:
    """How many trials are left and how long they take: by those that are done, else by the declared minutes.

    Which final trials are done is only known once the search is; the first cells stand for the chosen ones until then.
    """
    store = Store(folder / f"{plan.study.id}.jsonl")
    searches = plan.searches()
    left = [trial for trial in searches if trial not in store]
    chosen = first_cells(plan) if left else choose(plan, store)[0]
    finals = list({t.key: t for case in plan.cases() for t in plan.final(case, chosen)}.values())
    missing = [trial for trial in finals if trial not in store]
    total = len(searches) + len(finals)
    share = plan.scale.minutes / max(1, total)
    times = {stage: store.seconds(plan.name, stage) for stage in ("search", "final")}
    known = {stage: statistics.fmean(values) / 60 for stage, values in times.items() if values}
    of = {stage: known.get(stage, next(iter(known.values()), share)) for stage in ("search", "final")}
    return Estimate(
        search=len(left),
        final=len(missing),
        done=total - len(left) - len(missing),
        minutes=len(left) * of["search"] + len(missing) * of["final"],
        measured=bool(known),
    )


def _metric(row: Settings, study: Study) -> float | None:
    if study.choose_by not in row:
        raise ValueError(f"the search rows of {study.id} have no {study.choose_by!r}, by which it chooses")
    value: float | None = row[study.choose_by]
    return value


class _Shared:
    """Trials that this process and others take from one store."""

    def __init__(self, store: Store) -> None:
        self.store, self.refused, self.told = store, 0, False

    def __enter__(self) -> _Shared:
        self.claims = Claims(self.store.path.with_suffix(".lock"))
        return self

    def __exit__(self, *_: object) -> None:
        self.claims.close()

    def claim(self, trial: Trial) -> bool:
        """Whether this process is to run the trial."""
        if not self.claims.take(trial.key):
            self.refused += 1
            return False
        self.store.refresh()  # after it was taken: its last holder may have finished it
        if trial in self.store:
            self.claims.release(trial.key)
            return False
        return True

    def wait(self, log: Callable[[str], object], message: str) -> None:
        """Wait a moment; say so once."""
        if not self.told:
            log(message)
        self.told = True
        time.sleep(POLL)


def _until(
    engine: engines.Engine, trials: list[Trial], context: TrialContext, until: float | None, claim: Claim
) -> Iterator[Done]:
    if not trials or _is_over(until):
        return
    for done in engine(trials, context, claim):
        yield done
        if _is_over(until):
            return


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until
