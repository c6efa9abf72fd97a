"""The page that says in sentences what holds."""

from __future__ import annotations

from report.test_page import Read
from report.test_studies import CLAIM, NOT_RUN, RESULT
from widemargin.report import holds

ROWS = [
    {"arm": arm, "seed": seed, "accuracy": accuracy + 0.01 * seed * (arm == "margin l_2")}
    for arm, accuracy in (("cross-entropy", 0.8), ("margin l_2", 0.84), ("margin l_2, denominators detached", 0.81))
    for seed in (0, 1, 2)
]
GOOD = {**RESULT, "study": "E1", "verdict": "reproduced", "word": "reproduced", "rows": ROWS} | {
    "claims": [{**CLAIM, "reported": None, "measured": 5.0, "sd": 1.0, "word": "reproduced"}]
}


def test_every_study_of_the_papers_has_a_topic() -> None:
    from widemargin.studies import catalog

    assert sorted(id for _, _, ids in holds.TOPICS for id in ids.split()) == sorted(catalog.MODULES)
    assert {id for id, _, _ in holds.DIFFERENCES} <= catalog.MODULES.keys()


def test_sentences_carry_their_verdicts_and_links() -> None:
    text = holds.page([GOOD, RESULT, NOT_RUN])
    links = {link["href"] for link in Read(text).all("a") if link.get("href")}
    assert {"E1.html", "E3.html"} <= links
    assert "E4.html" not in links  # it has no page
    for said in ("Contradicted", "(10.00 ± 0.50 points, paper −2.5, the sign differs)", "1 of 2 claims hold", "Open"):
        assert said in text
    assert "gap 5.0 ± 1.0 points" in text
    assert "is 5.0 ± 1.0 points above cross-entropy, with detached ones" in text
    assert "the form that the paper trains, 1" in text
