"""Pages of the studies: the scoreboard, and one page per study, from result files (`results/<ID>.json`).

The pages load nothing from any server and run no script.
"""

from __future__ import annotations

import base64
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from widemargin.report import alt, goals, holds, html, study_charts
from widemargin.report.figures import save, svg
from widemargin.report.layers import inline
from widemargin.report.names import number, with_interval, with_spread
from widemargin.report.schema import Json
from widemargin.report.study_charts import Figure, StudyResult
from widemargin.report.study_schema import check_study
from widemargin.report.theme import Mode

ORDER = ("reproduced", "direction holds", "inconclusive", "contradicted", "not run")
CLASSES = ("good", "half", "none", "bad", "none", "none")
MOST = 500
"""The largest number of rows in the table below a chart."""


def write(
    folder: str | os.PathLike[str], results: Sequence[StudyResult], own: Sequence[StudyResult] = ()
) -> list[Path]:
    """Write the scoreboard as `index.html` and `scoreboard.svg`, `holds.html`, and `<ID>.html` for results with rows.

    `results` are those of all studies of the papers, in order; one that was not run has the paper's side alone. `own`
    are those of our own studies, which have a table and pages, but are counted nowhere.
    """
    for name, some in (("results", results), ("own", own)):
        for i, result in enumerate(some):
            check_study(result, f"{name}[{i}]", judged=True)
    folder = Path(folder)
    pages = {"index.html": scoreboard(results, own), "holds.html": holds.page(results)} | {
        f"{r['study']}.html": page(r) for r in (*results, *own) if r.get("rows")
    }
    written = [html.write(folder / name, text) for name, text in pages.items()]
    return [*written, save(counts_chart(results), folder / "scoreboard.svg")]


def counts(results: Sequence[StudyResult]) -> dict[str, int]:
    """The number of studies with each verdict, strongest verdict first, whatever their scale."""
    found = Counter(result["word"] for result in results)
    return dict(sorted(found.items(), key=lambda item: _strength(item[0])))


def claim_counts(results: Sequence[StudyResult]) -> dict[str, int]:
    """The number of the papers' claims with each verdict, strongest first."""
    found = Counter(claim["word"] for result in results for claim in result["claims"] if not claim.get("ours"))
    return dict(sorted(found.items(), key=lambda item: _strength(item[0])))


def held(result: StudyResult) -> str:
    """The share of the claims that hold: "36 of 42 claims hold"."""
    share = result["share"]
    return f"{share['hold']} of {share['ran']} claims hold" if share["ran"] else f"{share['of']} claims"


def scoreboard(results: Sequence[StudyResult], own: Sequence[StudyResult] = ()) -> str:
    """The page of all studies: reported value, measured value and verdict; `own` are our own studies."""
    boards = [{"name": "All studies", "reference": "paper", "rows": list(map(_row, results))}]
    boards += [{"name": "Our own studies", "reference": "goal", "rows": list(map(_row, own))}] if own else []
    tally = [{"verdict": word, "count": count, "class": _class(word)} for word, count in counts(results).items()]
    claims = claim_counts(results)
    said = ", ".join(f"{count} {word}" for word, count in claims.items())
    return html.render("scoreboard.html", boards=boards, tally=tally, total=len(results), claims=said)


def _row(result: StudyResult) -> dict[str, Json]:
    """What the scoreboard shows of a study."""
    claim, own = next(iter(result["claims"]), None), goals.is_own(result["source"])
    counted = ", ".join(f"{n} {word}" for word, n in result.get("counts", {}).items())
    verdict = goals.study_verdict(result)
    return {
        **{key: result[key] for key in ("study", "source", "title")},
        "verdict": verdict,
        "linked": bool(result.get("rows")),
        "claim": "" if claim is None else claim["text"],
        "paper": "" if claim is None else paper(claim),
        "ours": "" if claim is None else ours(claim),
        "class": _class(verdict),
        "held": goals.others_in_words(result) if own else held(result) + (f": {counted}" if counted else ""),
        "dead": _dead(result.get("dead", {})),
        "scale": result["scale"] or "–",
        "hardware": "; ".join(hardware(result)) or "–",
    }


def page(result: StudyResult) -> str:
    """The page of one study: claims, the paper's figure redrawn, deviations, and the command that reruns it."""
    drawn = (figure for figure in result.get("figures", []) if study_charts.has_rows(result, figure))
    figures, own = [_figure(result, figure) for figure in drawn], goals.is_own(result["source"])
    quotes = list(dict.fromkeys(claim["quote"] for claim in result["claims"] if claim.get("quote")))
    claims = [
        {
            **claim,
            "verdict": goals.claim_verdict(claim, own=own),
            "paper": paper(claim),
            "measured": ours(claim),
            "own": claim.get("ours", False),
            "class": _class(goals.claim_verdict(claim, own=own)),
            "died": _dead(claim.get("dead", {})),
            "said": 1 + quotes.index(claim["quote"]) if claim.get("quote") else None,
        }
        for claim in result["claims"]
    ]
    chosen = [
        {"place": place, "cell": _cell(cell), "others": _alternatives(result, place, cell)}
        for place, cell in result.get("chosen", {}).items()
        if cell
    ]
    weakest = f"{held(result)}; the weakest is {result.get('weakest', result['word'])}"
    return html.render(
        "study.html",
        result=result,
        reference="goal" if own else "paper",
        verdict=goals.study_verdict(result),
        claims=claims,
        quotes=quotes,
        figures=figures,
        chosen=chosen,
        hardware=hardware(result),
        commits=sorted({str(origin.get("commit")) for origin in result.get("origins", [])}),
        verdict_class=_class(goals.study_verdict(result)),
        summary=goals.others_in_words(result) if own else weakest,
        before=None if own else result.get("old verdict", {}).get("verdict"),
        dead=_dead(result.get("dead", {})),
    )


def _figure(result: StudyResult, figure: Figure) -> dict[str, Json]:
    """What the page shows of a figure."""
    found = study_charts.points(result, figure)
    dead = sum(point["dead"] for point in found)
    paper = any(point["paper"] is not None for point in found)
    notes = ["Bars are one standard deviation over seeds."] * (figure["kind"] != "scatter")
    notes += ["Diamonds are the paper's numbers."] * paper
    notes += ["A cross marks where seeds ended at guessing: means are of the others."] * bool(dead)
    all_died = any(point["dead"] and point["mean"] is None for point in found)
    notes += ["It is at the bottom edge where all seeds did."] * all_died
    return {
        "title": figure["title"],
        "light": _image(result, figure, "light"),
        "dark": _image(result, figure, "dark"),
        "points": [_cells(point, figure) for point in found[:MOST]],
        "x": figure.get("x_title") or figure["x"],
        "y": figure.get("y_title") or figure["y"],
        "split": figure.get("split"),
        "dead": dead,
        "paper": paper,
        "note": " ".join(notes),
    }


def counts_chart(results: Sequence[StudyResult]) -> alt.LayerChart:
    """A bar chart of the number of studies with each verdict."""
    rows = [{"verdict": word, "studies": count} for word, count in counts(results).items()]
    base = inline(rows).encode(
        y=alt.Y("verdict:N", sort=[row["verdict"] for row in rows], title=None, axis=alt.Axis(labelLimit=300)),
        x=alt.X("studies:Q", title="studies", axis=alt.Axis(tickMinStep=1)),
    )
    layers = base.mark_bar(height=18), base.mark_text(align="left", dx=6).encode(text="studies:Q")
    return alt.layer(*layers).properties(width=480, height={"step": 30})


def paper(claim: Mapping[str, Json]) -> str:
    """The paper's number, or "order" for a claim without one."""
    if claim["reported"] is None:
        return "order"
    bound = {"at least": "≥ ", "at most": "≤ "}.get(claim.get("side", "both"), "")
    return f"{bound}{claim['reported']:g}".replace("-", "−")


def ours(claim: Mapping[str, Json]) -> str:
    """Our number ± half of its 95 % interval over seeds, as on the page "What holds"."""
    mean, error = claim["measured"], claim["se"]
    if mean is None:
        return "–"
    if error is None:
        return number(mean) + " (one seed)"
    return with_interval(mean, error, claim["seeds"]) if error else with_spread(mean, 0.0)


def hardware(result: StudyResult) -> list[str]:
    """The machines that trials ran on."""
    machines = [origin.get("hardware", {}) for origin in result.get("origins", [])]
    names = (on.get("gpu") or f"{on.get('cpus', '?')} CPU cores ({on.get('machine', '?')})" for on in machines)
    return list(dict.fromkeys(map(str, names)))


def _cells(point: study_charts.Point, figure: Figure) -> dict[str, str]:
    percent = bool(figure.get("percent"))
    unit, factor = (" %", 100) if percent else ("", 1)

    def shown(mean: float | None, sd: float) -> str:
        return "–" if mean is None else with_spread(factor * mean, factor * sd) + unit

    return {
        "arm": str(point["arm"]),
        "x": f"{point['x']:g}" if isinstance(point["x"], (int, float)) else str(point["x"]),
        "split": str(point.get("split", "")),
        "value": shown(point["mean"], point["sd"]),
        "all": shown(point["mean of all"], point["sd of all"]) if point["dead"] else "",
        "seeds": str(point["seeds"]),
        "dead": str(point["dead"] or ""),
        "paper": "" if point["paper"] is None else f"{factor * point['paper']:.4g}{unit}",
    }


def _image(result: StudyResult, figure: Figure, mode: Mode) -> str:
    """The chart as a data URI of an SVG: scripts inside an image never run."""
    content = svg(study_charts.chart(result, figure), mode)
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode("ascii")


def _strength(verdict: str) -> int:
    return next(i for i, word in enumerate((*ORDER, "")) if verdict.startswith(word))


def _class(verdict: str) -> str:
    if found := re.fullmatch(r"(\d+) of (\d+) goals met", verdict):
        met, ran = map(int, found.groups())
        return "good" if met == ran else "half" if met else "bad"
    return {goals.MET: "good", goals.MISSED: "bad", goals.OPEN: "none"}.get(verdict) or CLASSES[_strength(verdict)]


def _cell(cell: Mapping[str, Json]) -> str:
    return ", ".join(f"{key} {value}" for key, value in cell.items())


def _alternatives(result: StudyResult, place: str, cell: Mapping[str, Json]) -> str:
    """The other settings of the search, each with the metric by which it was chosen and its dead seeds."""
    search = result.get("search", {})
    by, others = search.get("by", ""), []
    for row in search.get("table", []):
        if row.get("at") == place and row["cell"] != cell:
            score = "–" if row.get(by) is None else f"{row[by]:.4g}"
            died = f", {row['died']} of {row.get('seeds', '?')} seeds died" if row.get("died") else ""
            others.append(f"{_cell(row['cell'])} ({by} {score}{died})")
    return "; ".join(others)


def _dead(counts: Mapping[str, Sequence[int]]) -> str:
    return "; ".join(f"{count} of {of} seeds of {arm} died" for arm, (count, of) in counts.items())
