"""Tables of bounds, and the same as plain values for a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from widemargin.cli.console import number, share, table, text

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.bounds import Bound, Certificate, InputMargin, MarginEstimate
    from widemargin.report.schema import Json


def values(rows: Mapping[str, Bound]) -> Table:
    """A row a bound: its value, what it says, and the assumptions that the data break."""
    made = table("Bounds of the error, each with constant 1 where the paper has an unknown one")
    made.add_column("bound", overflow="fold", no_wrap=True)
    made.add_column("value", justify="right", no_wrap=True)
    made.add_column("says", no_wrap=True)
    made.add_column("assumptions that do not hold", overflow="fold")
    for name, bound in rows.items():
        broken = "; ".join(f"{a.text} ({a.found})" for a in bound.broken)
        made.add_row(text(name), number(bound.value), verdict(bound), text(broken or "–"))
    return made


def verdict(bound: Bound) -> str:
    """What a value says: nothing where it is vacuous, and nothing proved where an assumption is broken."""
    if bound.vacuous:
        return "vacuous"
    return "no bound" if bound.broken else "a bound"


def margins(found: InputMargin) -> Table:
    """A row a certificate or estimate of the distance to the boundary; misclassified samples count as 0."""
    made = table("Distance of the samples to the boundary (sokolic, Theorem 5)")
    made.add_column("kind", overflow="fold")
    for column in ("min", "median", "max", "above 0"):
        made.add_column(column, justify="right", no_wrap=True)
    for kind in _kinds(found):
        made.add_row(text(kind.name), *map(number, _statistics(kind).values()), share(_positive(kind)))
    return made


def terms(rows: Mapping[str, Bound]) -> Table:
    """A row a term of each bound."""
    made = table("Terms")
    made.add_column("bound", no_wrap=True)
    made.add_column("term", overflow="fold")
    made.add_column("value", justify="right", no_wrap=True)
    for name, bound in rows.items():
        for term, value in bound.terms.items():
            shown = str(value) if isinstance(value, int) else number(value)
            made.add_row(text(name), text(term), shown)
        made.rows[-1].end_section = True
    return made


def plain(rows: Mapping[str, Bound], found: InputMargin) -> dict[str, Json]:
    """The same as plain values."""
    return {
        "bounds": {
            name: {
                "source": bound.source,
                "value": bound.value,
                "vacuous": bound.vacuous,
                "terms": bound.terms,
                "assumptions": [{"text": a.text, "holds": a.holds, "found": a.found} for a in bound.assumptions],
            }
            for name, bound in rows.items()
        },
        "input margin": {kind.name: {**_statistics(kind), "above 0": _positive(kind)} for kind in _kinds(found)},
    }


def _kinds(found: InputMargin) -> list[Certificate | MarginEstimate]:
    return [kind for kind in (found.frobenius, found.spectral, found.jacobian) if kind is not None]


def _statistics(kind: Certificate | MarginEstimate) -> dict[str, float]:
    from widemargin.margins import Distribution

    known = Distribution.of(kind.values)
    return {"min": known.minimum, "median": known.quantile(0.5), "max": known.quantile(1.0)}


def _positive(kind: Certificate | MarginEstimate) -> float:
    return float((kind.values > 0).double().mean())
