"""Draw docs/pictures/stability.svg from results/stability.json: each cell's accuracy relative to cross-entropy's."""

from __future__ import annotations

import json
from pathlib import Path

import altair as alt

from widemargin.report.figures import save

ROOT = Path(__file__).parent.parent


def main() -> None:
    cells = json.loads((ROOT / "results/stability.json").read_text())["cells"]
    rows = [
        {
            "data": "digits" if c["data"] == "digits" else "256 images of mnist-5k",
            "form": c["form"],
            "loss": c["loss"].replace("large margin ", ""),
            "setting": f"{c['optimizer'].replace('sgd', 'SGD').replace('adam', 'Adam')} {c['lr']:g}",
            "ratio": c["accuracy"] / c["cross-entropy"] if c["counts"] else None,
            "text": f"{c['accuracy'] / c['cross-entropy']:.2f}" if c["counts"] else "–",
        }
        for c in cells
    ]
    order = [f"SGD {lr:g}" for lr in (0.003, 0.01, 0.03, 0.1)] + [f"Adam {lr:g}" for lr in (3e-4, 1e-3, 3e-3)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(
            "setting:N",
            sort=order,
            title=None,
            axis=alt.Axis(labelAngle=-50, labelOverlap=False, grid=False, ticks=False, domain=False),
        ),
        y=alt.Y("loss:N", title=None, axis=alt.Axis(grid=False, ticks=False, domain=False)),
    )
    squares = base.mark_rect(stroke="white").encode(
        color=alt.Color(
            "ratio:Q",
            title=["accuracy relative", "to cross-entropy"],
            scale=alt.Scale(
                domain=[0, 0.5, 0.95, 1.05], range=["#7f3b08", "#e08214", "#d8daeb", "#2d7fb8"], interpolate="rgb"
            ),
        )
    )
    text = base.mark_text(fontSize=10).encode(
        text="text:N", color=alt.condition("datum.ratio < 0.4", alt.value("white"), alt.value("#222"))
    )
    chart = alt.layer(squares, text).properties(width=250, height=170)
    save(
        chart.facet(
            column=alt.Column("data:N", title=None),
            row=alt.Row("form:N", sort=["printed", "scale-free"], title=None),
        ),
        ROOT / "docs/pictures/stability.svg",
    )


if __name__ == "__main__":
    main()
