"""`widemargin bench`: what a step of a margin loss costs, against a step of cross-entropy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widemargin.cli.console import notice, out, say, table, text
from widemargin.cli.options import Device

if TYPE_CHECKING:
    from rich.table import Table


def bench(
    device: Device = "cpu",
    minutes: Annotated[float | None, typer.Option(min=0.01, metavar="N", help="Begin no row later than this.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Turns of every way; medians are over them. 3, on a GPU 5.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, metavar="N", help="Steps of a turn. 1, on a GPU 5.")] = None,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Rows whose label has this in it.")] = "",
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where the numbers go; else results/bench-step.json or -cuda.json."),
    ] = None,
) -> None:
    """Measure what a training step costs, as ratios to cross-entropy.

    A step is a forward pass and the gradients of the weights. Margin losses by
    margin_backward, by plain autograd and by a backward pass per place and
    class; all classes, exactly and estimated; the Jacobian regularizer; and how
    they scale. On a CPU networks are tiny (about a minute); on a GPU they are
    the papers' (tens of minutes; --minutes ends it earlier). What is known is
    written after every row.

    [bold]Examples[/bold]

      widemargin bench
      widemargin bench --device cuda --minutes 10 --only WRN
    """
    from widemargin.cli.devices import device as chosen

    where = str(chosen(device))

    from widemargin.bench import Settings, run

    usual_rounds, usual_steps = (3, 1) if where == "cpu" else (5, 5)
    settings = Settings(
        device=where,
        rounds=rounds or usual_rounds,
        steps=steps or usual_steps,
        minutes=math.inf if minutes is None else minutes,
        only=only,
    )
    path = output or Path("results") / f"bench-step{'-cuda' if settings.on_gpu else ''}.json"
    console = out()
    result = run(settings, path, told=lambda row: console.print(shown(row)))
    if result["left out"]:
        notice(f"no time was left for: {', '.join(result['left out'])}")
    say(f"Written to {path}")


def shown(row: dict[str, Any]) -> Table:
    """A row of the benchmark as a table."""
    rows = table(f"{row['label']}, batch {row['batch']}")
    rows.add_column("way")
    for name in ("ms", "ratio", "of graphs", "peak"):
        rows.add_column(name, justify="right")
    graphs = row.get("ratio of graphs", {})
    for name, took in row.get("milliseconds", {}).items():
        peaks = row.get("peak ratio", {})
        peak = f"{peaks[name]:.3f}" if name in peaks else ""
        graph = f"{graphs[name]:.3f}" if name in graphs else ""
        rows.add_row(text(name), f"{took:.2f}", f"{row['ratio'][name]:.3f}", graph, peak)
    for name, reason in row["failed"].items():
        rows.add_row(text(f"{name}: {reason}"), "–", "–", "", "")
    return rows
