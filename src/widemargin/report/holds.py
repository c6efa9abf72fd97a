"""The page "What holds in the margin papers": two screens of sentences, from the verdicts, grouped by question."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from widemargin.report import html
from widemargin.report.effect_sentences import DIFFERENCES, EFFECTS, TOPICS, Pair
from widemargin.report.names import with_interval
from widemargin.report.schema import Json
from widemargin.report.study_charts import StudyResult

MARKS = {
    "reproduced": ("good", "✓"),
    "direction holds": ("half", "↗"),
    "contradicted": ("bad", "✗"),
    "inconclusive": ("none", "?"),
}
"""Verdicts that have a sentence, their colours and marks."""

HOLDS, OPEN = ("reproduced", "direction holds"), ("inconclusive", "not run")


def page(results: Sequence[StudyResult]) -> str:
    """The page, of the results of all studies."""
    by_id = {str(result["study"]): result for result in results}
    topics = []
    for title, ids in TOPICS:
        found = [by_id[id] for id in ids.split() if id in by_id]
        if not found:
            continue
        told = [sentence(one) for word in MARKS for one in found if one["word"] == word]
        named = [_named(one) for word in OPEN for one in found if one["word"] == word and sentence(one)["text"] == ""]
        topics.append({"title": title, "told": [one for one in told if one["text"]], "open": named})
    differences = [
        {"study": id, "linked": bool(by_id[id].get("rows")), "text": _filled(by_id[id], text, pairs)}
        for id, text, pairs in DIFFERENCES
        if id in by_id
    ]
    words = Counter(result["word"] for result in results)
    return html.render(
        "holds.html", topics=topics, differences=differences, total=len(results), counts=words, marks=MARKS
    )


def sentence(result: StudyResult) -> dict[str, Json]:
    """What one study says: its effect with both numbers, its verdict, and the share of claims that hold.

    The text of an inconclusive study is empty unless its headline claim holds.
    """
    share, word = result["share"], str(result["word"])
    kind = ("contradicted",) if word == "contradicted" else HOLDS
    alike = [claim for claim in result["claims"] if not claim.get("ours") and claim.get("word") in kind]
    _, begin, text = EFFECTS[str(result["study"])]
    claim = next((claim for claim in alike if str(claim["text"]).startswith(begin)), None)
    if claim is None and word not in OPEN:  # the study is decided by others of its claims
        text = "".join(f"{other['text']}: {{}}." for other in alike[:1])
        claim = next(iter(alike), None)
    return {
        "study": result["study"],
        "linked": bool(result.get("rows")),
        "verdict": str(result["verdict"]),
        "mark": MARKS.get(word),
        "text": "" if claim is None else _told(claim, text),
        "share": f"{share['hold']}/{share['ran']}" + ("" if result["scale"] == "paper" else f", {result['scale']}"),
    }


def _named(result: StudyResult) -> dict[str, Json]:
    """A study that is not decided: its subject, and whether it ran."""
    subject, verdict = EFFECTS[str(result["study"])][0], str(result["verdict"])
    text = f"{subject} ({verdict})" if verdict.startswith("not run") else subject
    return {"study": result["study"], "linked": bool(result.get("rows")), "text": text}


def _told(claim: Mapping[str, Json], text: str) -> str:
    """The sentence with our number, the paper's, and the effect that a contradiction would have seen."""
    reported, measured, error, seeds = claim["reported"], claim["measured"], claim.get("se") or 0.0, claim["seeds"]
    if "{} seeds" in text:  # a share of them
        return text.replace("{}", f"{measured * seeds:g} of {seeds}")
    if measured < 0 and not reported and " gains {}" in text:  # "gains −10 points" must be read twice
        measured, text = -measured, text.replace(" gains {}", " loses {}")
    ours = with_interval(measured, error, seeds)
    is_plain = not reported or (not error and math.isclose(reported, measured))  # nothing to add
    beside = [] if is_plain else [f"paper {reported:g}".replace("-", "−")]
    if claim.get("word") == "contradicted":
        beside += [part for part in str(claim["why"]).split("; ") if "would have been seen" in part]
    said = text.replace("{}", ours)
    return f"{said[:-1]} ({', '.join(beside)})." if beside else said


def _filled(result: StudyResult, text: str, pairs: Sequence[Pair]) -> str:
    return text.format(*(_difference(result, *pair) for pair in pairs))


def _difference(result: StudyResult, arm: str, against: str) -> str:
    """The mean difference of two arms' accuracies over seeds, in points, ± half of its 95 % interval."""
    by_arm = [
        {
            row.get("seed"): row["accuracy"]
            for row in result.get("rows", [])
            if row["arm"] == name and "curve" not in row and isinstance(row.get("accuracy"), (int, float))
        }
        for name in (arm, against)
    ]
    gaps = [100 * (by_arm[0][seed] - by_arm[1][seed]) for seed in sorted(by_arm[0].keys() & by_arm[1].keys())]
    if len(gaps) < 2:
        return "–"
    return with_interval(statistics.fmean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps)), len(gaps))
