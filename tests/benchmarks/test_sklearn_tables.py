"""The comparison with scikit-learn's classifiers runs, and its page shows the stored numbers."""

from __future__ import annotations

import json
from pathlib import Path

from sklearn.linear_model import LogisticRegression

import sklearn_tables
from widemargin.integrations.sklearn import WideMarginClassifier


def test_every_estimator_has_a_row() -> None:
    estimators = {
        "LogisticRegression": lambda seed: LogisticRegression(random_state=seed),
        "WideMarginClassifier": lambda seed: WideMarginClassifier(epochs=2, calibrate=False, random_state=seed),
    }
    rows = list(sklearn_tables.compare("wine", 2, estimators))
    assert [row["estimator"] for row in rows] == list(estimators)
    for row in rows:
        assert len(row["values"]["accuracy"]) == len(row["values"]["log loss"]) == 2
        assert 0 < row["accuracy with noise"]["mean"] <= 1


def test_the_page_has_the_table_of_the_results() -> None:
    result = json.loads(sklearn_tables.RESULT.read_text())
    page = Path(__file__).parents[2] / "docs" / "guides" / "scikit_learn.md"
    assert sklearn_tables.markdown(result) in page.read_text()
