"""`WideMarginClassifier` against LogisticRegression, SVC and MLPClassifier on three tables of scikit-learn.

    python benchmarks/sklearn_tables.py            # writes results/sklearn.json (some minutes on one core)
    python benchmarks/sklearn_tables.py --table    # prints the table of docs/guides/scikit_learn.md from it

Defaults for everyone, with a StandardScaler before the three of scikit-learn; the same five stratified splits, with
a quarter of the rows for testing. Nothing is chosen on these tables.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.integrations.sklearn import WideMarginClassifier

RESULT = Path(__file__).parents[1] / "results" / "sklearn.json"
SPLITS = 5
TEST = 0.25
NOISE = 0.5  # of the noise added to test rows, in standard deviations of a feature

TABLES: dict[str, Callable[..., Any]] = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
ESTIMATORS: dict[str, Callable[[int], Any]] = {
    "LogisticRegression": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(random_state=seed)),
    "SVC": lambda seed: make_pipeline(StandardScaler(), SVC(random_state=seed)),
    "MLPClassifier": lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
    "WideMarginClassifier": lambda seed: WideMarginClassifier(device="cpu", random_state=seed),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print the table of results/sklearn.json")
    if parser.parse_args().table:
        print(markdown(json.loads(RESULT.read_text())))
        return
    rows = [row for name in TABLES for row in compare(name, SPLITS)]
    settings = {"splits": SPLITS, "test share": TEST, "noise": NOISE, "seeds": list(range(SPLITS))}
    write_json(RESULT, {"settings": settings, "rows": rows, **provenance("cpu")})


def compare(name: str, splits: int, estimators: Mapping[str, Callable[[int], Any]] = ESTIMATORS) -> Iterator[Any]:
    """A row for every estimator: the values of every split, their means and standard deviations."""
    X, y = TABLES[name](return_X_y=True)
    for label, build in estimators.items():
        found: dict[str, list[float]] = {"accuracy": [], "accuracy with noise": [], "log loss": [], "fit seconds": []}
        for seed in range(splits):
            train, test = next(StratifiedShuffleSplit(1, test_size=TEST, random_state=seed).split(X, y))
            estimator = build(seed)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # 100 and 200 iterations are the defaults
                estimator.fit(X[train], y[train])
            found["fit seconds"].append(time.perf_counter() - started)
            found["accuracy"].append(estimator.score(X[test], y[test]))
            found["accuracy with noise"].append(estimator.score(noisy(X[test], X[train], seed), y[test]))
            if hasattr(estimator, "predict_proba"):
                found["log loss"].append(log_loss(y[test], estimator.predict_proba(X[test])))
        row = {"table": name, "estimator": label, "rows": len(y), "features": X.shape[1], "values": found}
        row |= {key: {"mean": fmean(v), "std": stdev(v) if len(v) > 1 else None} for key, v in found.items() if v}
        print(name, label, *(f"{key} {row[key]['mean']:.4f}" for key in found if key in row), flush=True)
        yield row


def noisy(X: Any, train: Any, seed: int) -> Any:
    """The rows with noise of `NOISE` standard deviations, of the training rows, of every feature."""
    import numpy as np

    return X + NOISE * train.std(axis=0) * np.random.default_rng(seed).standard_normal(X.shape)


def markdown(result: Mapping[str, Any]) -> str:
    """The table of the guide; the best mean of a table and column, and those within its deviation, are bold."""
    lines = ["| table | classifier | accuracy | with noise | log loss |", "| --- | --- | ---: | ---: | ---: |"]
    for table in TABLES:
        rows = [row for row in result["rows"] if row["table"] == table]
        for row in rows:
            cells = [_cell(row, rows, key) for key in ("accuracy", "accuracy with noise", "log loss")]
            lines.append(f"| {table} | `{row['estimator']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], rows: list[Mapping[str, Any]], key: str) -> str:
    if key not in row:
        return "–"
    sign = -1 if key == "log loss" else 1
    best = max((r[key] for r in rows if key in r), key=lambda value: sign * value["mean"])
    mean, std = row[key]["mean"], row[key]["std"]
    text = f"{mean:.3f} ± {std:.3f}" if key == "log loss" else f"{100 * mean:.1f} ± {100 * std:.1f} %"
    return f"**{text}**" if sign * mean >= sign * best["mean"] - best["std"] else text


if __name__ == "__main__":
    main()
