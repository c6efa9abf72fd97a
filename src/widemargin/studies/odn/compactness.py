"""O5 and O6: the last hidden layer by t-SNE, and how compact classes are there (odn, §4.4, Fig. 3, 4, Tables 2, 3)."""

from __future__ import annotations

from widemargin.studies.claims import Claim
from widemargin.studies.odn import data, losses
from widemargin.studies.schema import Figure, Scales, bars, effort, named, scales, scatter
from widemargin.studies.settings import Settings, overlay

SETS: dict[str, Settings] = {
    "MNIST": overlay(data.MNIST, data.FRACTIONS[0.01]),
    "CIFAR-10": overlay(data.CIFAR10, {"data.train": 450}),
}
"""Models trained on 1 % of the training set (§4.4)."""

_XY = ("first coordinate", "second coordinate")
SMALL = (("MNIST", data.SMOKE_MNIST, 60), ("CIFAR-10", data.SMOKE_CIFAR10, 40))
_REPORTED = {
    ("MNIST", "train"): (21.45, 20.96, 30.32, 86.68),
    ("MNIST", "test"): (15.65, 16.01, 13.3, 21.5),
    ("CIFAR-10", "train"): (19.52, 13.28, 27.55, 68.77),
    ("CIFAR-10", "test"): (3.64, 3.34, 3.03, 4.41),
}


Q_COMPACT = (
    "By comparing the ratio of the intra-class variance to the inter-class variance in Table 2 and Table 3, we can "
    "know that our optimal margin distribution loss always attain the most compact distribution in these four loss "
    "functions."
)


def _measure(count: int | None, shown: int) -> Settings:
    starts = {} if count is not None and count < 1000 else {"starts": 5}
    return {"measure": [{"kind": "embedding", "of": ("train", "test"), "count": count, "shown": shown, **starts}]}


def _most_compact(name: str, part: str) -> tuple[Claim, ...]:
    text = f"{name}, {part}: classes more compact with ODN than with {{}}"
    return losses.above_each(text, metric=f"between/within {part}", where={"set": name}, share=False, quote=Q_COMPACT)


def _numbers() -> tuple[Settings, ...]:
    """Tables 2 and 3, as rows."""
    return tuple(
        {"arm": arm, "set": name, f"between/within {part}": ratio}
        for (name, part), ratios in _REPORTED.items()
        for arm, ratio in zip(losses.PAPER, ratios, strict=True)
    )


def _scales(seeds: int, shown: int) -> Scales:
    counts = ((12, min(shown, 5)), (300, min(shown, 100)), (1000, shown), (None, shown))
    return scales(
        "digits of 8 × 8 pixels, synthetic images for CIFAR-10, small networks, 3 steps, 12 points",
        "MNIST alone, as mnist-5k, 300 points; then steps, widths, the search (2 cells); two cores",
        "CIFAR-10 is left out, then steps are cut from 20,000 to 5,000, then test images to 1,000, then the "
        "search to 4 cells; the networks are those of O7; one GPU",
        "all test images; one GPU",
        **effort(
            minutes=(0.1, 8, 10, 900), seeds=(1, min(seeds, 2), seeds, 5), cells=(1, 2, 4, 6), search_seeds=(1, 1, 3, 3)
        ),
        settings=[_measure(*count) for count in counts],
        of_values=(
            {"set": {name: overlay(small, {"data.train": count}) for name, small, count in SMALL}},
            {"set": {"MNIST": data.QUICK_MNIST}},
            {"set": {"MNIST": data.BUDGET}},
        ),
        only=({}, {"set": ("MNIST",)}, {"set": ("MNIST",)}),
        arms=(losses.FEW, losses.FEW, losses.SOME),
    )


def _figures(name: str, part: str, figure: str) -> tuple[Figure, ...]:
    at = {"curve": "embedding", "set": name, "part": part, "seed": 0}
    text = f"last hidden layer of {part} images of {name} by t-SNE (odn, {figure})"
    return tuple(scatter("x", "y", f"{arm}: {text}", *_XY, arms=(arm,), where=at, split="digit") for arm in losses.SOME)


SWAPPED = "Read with the errata: the rows of Tables 2 and 3 are swapped, and the ratio is between over within."
TSNE = (
    "The paper does not give its settings of t-SNE: here those of scikit-learn, with perplexity 30, and variances are "
    "means over five embeddings of a network."
)

O5 = losses.study(
    **named("O5", "odn, Fig. 3 and 4", "The last hidden layer, seen by t-SNE"),
    question="Do classes lie more compactly in the last hidden layer of ODN's network than in that of the others?",
    axes={"set": SETS},
    claims=tuple(claim for key in _REPORTED for claim in _most_compact(*key)),
    figures=tuple(
        figure
        for name in SETS
        for part, number in (("train", "Fig. 3"), ("test", "Fig. 4"))
        for figure in _figures(name, part, number)
    ),
    scales=_scales(seeds=5, shown=300),
    deviations=(TSNE, "The pictures show the first 300 points of seed 0; the claims are of all points."),
)

TITLE = "Variance between classes over variance within them, {} images (odn, Tables 2 and 3)"
O6 = losses.study(
    **named("O6", "odn, Tables 2 and 3", "Variance between and within classes"),
    question="How large is the variance between classes over that within them, in the plane of t-SNE?",
    axes={"set": SETS},
    claims=tuple(claim for key in _REPORTED for claim in _most_compact(*key)),
    paper=_numbers(),
    figures=tuple(
        bars("set", f"between/within {part}", TITLE.format(part), "data", "between / within")
        for part in ("train", "test")
    ),
    scales=_scales(seeds=5, shown=0),
    deviations=(
        TSNE,
        SWAPPED,
        "Orders are judged and not the ratios themselves, which depend on the scale of t-SNE's clusters: the paper's "
        "are shown beside ours.",
    ),
)
