"""The page that says in sentences what holds."""

from __future__ import annotations

from math import sqrt

from scipy import stats

from report.test_page import Read
from report.test_studies import CLAIM, NOT_RUN, RESULT
from widemargin.report import holds
from widemargin.report.effect_sentences import DIFFERENCES, EFFECTS, TOPICS
from widemargin.report.names import with_interval

ROWS = [
    {"arm": arm, "seed": seed, "accuracy": accuracy + 0.01 * seed * (arm == "margin l_2")}
    for arm, accuracy in (("cross-entropy", 0.8), ("margin l_2", 0.84), ("margin l_2, denominators detached", 0.81))
    for seed in (0, 1, 2)
]
TOLD_BY = EFFECTS["E1"][1]
GOOD = {**RESULT, "study": "E1", "verdict": "reproduced", "word": "reproduced", "rows": ROWS} | {
    "claims": [
        {**CLAIM, "text": TOLD_BY, "reported": None, "measured": 5.0, "se": 1 / sqrt(3), "seeds": 3}
        | {"sd": 1.0, "word": "reproduced"}
    ]
}


def test_every_study_of_the_papers_has_a_topic_and_a_sentence_by_one_of_its_claims() -> None:
    from widemargin.studies import catalog

    assert sorted(id for _, ids in TOPICS for id in ids.split()) == sorted(catalog.MODULES)
    assert sorted(EFFECTS) == sorted(catalog.MODULES)
    assert {id for id, _, _ in DIFFERENCES} <= catalog.MODULES.keys()
    for id, (_, begin, text) in EFFECTS.items():
        found = [claim.text for claim in catalog.study(id).claims if claim.text.startswith(begin) and not claim.ours]
        assert len(found) == 1, (id, found)  # else another claim is told where the first does not hold
        assert (text.count("{}"), text[-1]) == (1, ".")


def test_sentences_carry_their_verdicts_and_links() -> None:
    text = holds.page([GOOD, RESULT, NOT_RUN])
    links = {link["href"] for link in Read(text).all("a") if link.get("href")}
    assert {"E1.html", "E3.html"} <= links
    assert "E4.html" not in links  # it has no page
    assert "a margin at every layer gains 5.0 ± 2.5 points." in text
    assert "Open: few samples (not run) E4." in text
    assert "the margin loss gains 5.0 ± 2.5 points, with detached ones" in text


def test_a_study_is_told_by_a_claim_that_agrees_with_its_verdict() -> None:
    told = holds.sentence(RESULT)  # contradicted, by a claim that is not the one of its sentence
    assert told["text"] == f"{CLAIM['text']}: 10 (two seeds) (paper −2.5)."
    claim = {
        **CLAIM,
        "text": TOLD_BY,
        "seeds": 5,
        "word": "contradicted",
        "why": "no; an effect of 2 would have been seen",
    }
    seen = holds.sentence({**GOOD, "word": "contradicted", "claims": [claim]})
    assert str(seen["text"]).endswith("10.00 ± 0.97 points (paper −2.5, an effect of 2 would have been seen).")
    half = {**GOOD, "word": "inconclusive", "verdict": "inconclusive"}
    assert "gains 5.0 ± 2.5 points" in holds.page([half])  # the study is open, this claim holds
    below = {**claim, "reported": None, "measured": -10.0}
    assert "loses 10.00 ± 0.97 points (an effect" in str(
        holds.sentence({**GOOD, "claims": [below]} | {"word": "contradicted"})["text"]
    )
    none = {**half, "claims": [{**claim, "word": "inconclusive"}]}
    assert holds.sentence(none)["text"] == ""
    assert "Open: two classes in the plane" in holds.page([none])


def test_the_interval_is_students() -> None:
    values = [1.0, 2.5, 4.0, 2.0]
    error = float(stats.sem(values))
    low, high = stats.t.interval(0.95, df=3, loc=2.375, scale=error)
    assert with_interval(2.375, error, 4) == f"2.4 ± {(high - low) / 2:.1f}" == "2.4 ± 2.0"
    assert with_interval(2.375, 0.0, 4) == "2.38"
    assert with_interval(-2.375, error, 2) == "−2.38 (two seeds)"


def test_a_share_of_seeds_is_counted() -> None:
    begin = EFFECTS["F5"][1]
    claim = {**CLAIM, "text": begin, "measured": 2 / 3, "se": 0.33, "seeds": 3, "reported": 1.0, "word": "reproduced"}
    told = holds.sentence({**GOOD, "study": "F5", "claims": [claim]})
    assert str(told["text"]).endswith("equal outputs differ in test accuracy in 2 of 3 seeds.")
