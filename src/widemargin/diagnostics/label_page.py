"""Label issues as the plain values that the report reads (`report.label_issues`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widemargin._io.provenance import provenance
from widemargin.margins.page import image
from widemargin.report.label_issues import LabelPage, Suspect

if TYPE_CHECKING:
    from widemargin.diagnostics.label_issues import LabelIssues

MOST_COLUMNS = 12
"""Features of a table that are shown."""

COUNTS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)


def page_values(issues: LabelIssues, *, count: int, title: str) -> LabelPage:
    """The values of a page with the `count` most suspicious samples."""
    positions = issues.ranking[:count].tolist()
    x = issues.samples.x
    bounds = (float(x.min()), float(x.max())) if x.is_floating_point() else (0.0, 1.0)
    is_table = x.ndim == 2 and x.is_floating_point()
    items: list[Suspect] = []
    for row, i in zip(issues.rows(count), positions, strict=True):
        values = [f"{value:.4g}" for value in x[i, :MOST_COLUMNS].tolist()] if is_table else []
        items.append(
            {
                "index": row["index"],
                "given": row["given"],
                "suggested": row["suggested"],
                "margin": row["margin"],
                "wrong": row["wrong"],
                "image": image(x[i], bounds).get("image"),
                "values": values,
            }
        )
    suspects = len(issues.suspects)
    steps = [n for n in COUNTS if n <= max(2 * suspects, COUNTS[0])]
    origin = provenance()
    return {
        "title": title,
        "samples": len(issues),
        "suspects": suspects,
        "expected precision": list(issues.expected_precision) if suspects else None,
        "expected share": list(issues.share),
        "items": items,
        "columns": list(issues.columns[:MOST_COLUMNS]) if is_table else [],
        "hidden columns": max(0, len(issues.columns) - MOST_COLUMNS) if is_table else 0,
        "pairs": [{"given": a, "suggested": b, "count": n} for a, b, n in issues.pairs()[:20]],
        "precision": [{"count": n, "precision": list(issues.precision_of(n))} for n in steps],
        "settings": issues.settings,
        "versions": {**origin["versions"], "commit": origin["commit"] or "unknown"},
        "hardware": origin["hardware"],
    }
