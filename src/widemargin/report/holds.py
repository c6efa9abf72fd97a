"""The page "What holds in the margin papers": a sentence for every study, from the verdicts, grouped by question."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from widemargin.report import html
from widemargin.report.names import with_spread
from widemargin.report.schema import Json
from widemargin.report.study_charts import StudyResult

TOPICS: tuple[tuple[str, str, str], ...] = (
    (
        "Wrong labels and few samples",
        "Do margins help where labels are wrong or samples few?",
        "E3 E4 E11 E12 O2 O3 S2 S3",
    ),
    ("Attacks and noise", "Do margins at training samples protect test samples?", "E5 E6 E7 E8 E9 E13 E14"),
    ("Clean data and cost", "What do margins cost where data are plenty?", "E2 E10 E16 O1 O4"),
    ("Shape of the margins", "What do the losses do to margins and features?", "E1 E15 O5 O6 O7"),
    ("Margins and generalization", "Does a normalized margin explain test accuracy?", "F1 F2 F3 F4 F5 F6 F7 F8 F9"),
    ("Theory", "Do the theorems hold, and are their bounds sharp?", "E17 E18 O8 S1 S4 S5"),
)
"""Title, question, and the studies that answer it."""

Pair = tuple[str, str]
DIFFERENCES: tuple[tuple[str, str, tuple[Pair, ...]], ...] = (
    (
        "E1",
        "Second-order gradients: with the exact gradient through its denominators the margin loss is {0} points above "
        "cross-entropy, with detached ones, the form that the paper trains, {1}.",
        (("margin l_2", "cross-entropy"), ("margin l_2, denominators detached", "cross-entropy")),
    ),
    (
        "O2",
        "Search: one search seed gave the printed ODN loss a learning rate at which most of its seeds died. Settings "
        "at which a search seed dies are refused now, and dead seeds are counted.",
        (),
    ),
    (
        "E7",
        "Attacks: the paper's are not clipped to the range of images and use the plain gradient of float32, which a "
        "large margin masks. Its accuracies are compared under its own attack, orders under a safe one.",
        (),
    ),
    (
        "E3",
        "Form of the loss: on softmax scores with γ = 200, as printed, the margin loss does not train where most "
        "labels are wrong; on logits, with γ in units of the input, it does.",
        (),
    ),
)
"""Study, sentence, and the pairs of arms whose mean differences of accuracy fill its braces."""

HOLDS = ("reproduced", "direction holds")


def page(results: Sequence[StudyResult]) -> str:
    """The page, of the results of all studies."""
    by_id = {str(result["study"]): result for result in results}
    topics = []
    for title, question, ids in TOPICS:
        found = [by_id[id] for id in ids.split() if id in by_id]
        groups = {"Holds": HOLDS, "Contradicted": ("contradicted",), "Open": ("inconclusive", "not run")}
        said = {name: [sentence(one) for one in found if one["word"] in words] for name, words in groups.items()}
        topics.append({"title": title, "question": question, "groups": {k: v for k, v in said.items() if v}})
    differences = [
        {"study": id, "linked": bool(by_id[id].get("rows")), "text": _filled(by_id[id], text, pairs)}
        for id, text, pairs in DIFFERENCES
        if id in by_id
    ]
    return html.render("holds.html", topics=topics, differences=differences, total=len(results))


def sentence(result: StudyResult) -> dict[str, Json]:
    """What one study says: its verdict, the claim that shows it, and the share of claims that hold."""
    claims = [claim for claim in result["claims"] if not claim.get("ours")]
    alike = [claim for claim in claims if claim.get("word") == result["word"]]
    claim = next(iter(alike or claims), None)
    share = result["share"]
    return {
        "study": result["study"],
        "linked": bool(result.get("rows")),
        "title": result["title"],
        "verdict": result["verdict"],
        "claim": "" if claim is None else _claim(claim),
        "share": f"{share['hold']} of {share['ran']} claims hold" if share["ran"] else "",
    }


def _claim(claim: Mapping[str, Json]) -> str:
    """A claim with both numbers, and what a contradiction would have seen or doubt would take."""
    reported, measured, sd = claim["reported"], claim["measured"], claim.get("sd")
    numbers = []
    if measured is not None:
        unit = f" {claim['unit']}" if claim.get("unit") else ""
        ours = f"{measured:.3g}" if sd is None else with_spread(measured, sd)
        numbers.append(f"{'gap ' if reported is None else ''}{ours}{unit}")
    if reported is not None:
        numbers.append(f"paper {reported:g}".replace("-", "−"))
    if claim.get("word") in ("contradicted", "inconclusive"):
        reasons = [part for part in str(claim["why"]).split("; ") if not part.endswith(" died")]
        numbers.extend(reasons[-1:])
    return f"{claim['text']} ({', '.join(numbers)})" if numbers else str(claim["text"])


def _filled(result: StudyResult, text: str, pairs: Sequence[Pair]) -> str:
    return text.format(*(_difference(result, *pair) for pair in pairs))


def _difference(result: StudyResult, arm: str, against: str) -> str:
    """Mean ± standard deviation over seeds of the difference of two arms' accuracies, in points."""
    by_arm = [
        {
            row.get("seed"): row["accuracy"]
            for row in result.get("rows", [])
            if row["arm"] == name and "curve" not in row and isinstance(row.get("accuracy"), (int, float))
        }
        for name in (arm, against)
    ]
    gaps = [100 * (by_arm[0][seed] - by_arm[1][seed]) for seed in sorted(by_arm[0].keys() & by_arm[1].keys())]
    return with_spread(statistics.fmean(gaps), statistics.stdev(gaps)) if len(gaps) > 1 else "–"
