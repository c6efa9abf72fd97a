"""The last hidden layer of a network, embedded in the plane, and how compact its classes are there (odn, §4.4)."""

from __future__ import annotations

import statistics

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.data import Samples
from widemargin.modules import predict, unwrap
from widemargin.studies.rows import Row
from widemargin.types import Labels


def measured(network: nn.Module, samples: Samples, *, part: str, seed: int, shown: int, starts: int = 1) -> Row:
    """Of the samples of one part ("train", "test"): `between/within <part>`, both variances, and the first points.

    Points are of the curve "embedding", at part, coordinates x and y and the digit. Variances are means over `starts`
    embeddings, whose seeds follow one another; the points are of the first.
    """
    hidden, labels = last_hidden(network, samples), samples.y.cpu()
    embedded = tsne(hidden, seed)
    more = (tsne(hidden, 1000 * start + seed) for start in range(1, starts))
    found = [variances(embedded, labels), *(variances(one, labels) for one in more)]
    between, within = (statistics.fmean(values) for values in zip(*found))
    points = [
        {"curve": "embedding", "at": {"part": part, "digit": int(digit)}, "x": round(x, 2), "y": round(y, 2)}
        for (x, y), digit in zip(embedded[:shown].tolist(), labels[:shown].tolist())
    ]
    return {
        f"between/within {part}": between / within if within > 0 else None,
        f"between {part}": between,
        f"within {part}": within,
        "points": points,
    }


def variances(points: Float[Tensor, "samples dims"], labels: Labels) -> tuple[float, float]:
    """Σ_c n_c‖m_c − m‖²/n and Σ_i ‖z_i − m_{y_i}‖²/n, which add up to the variance of all points.

    Source: odn, Tables 2 and 3, whose names for the two are swapped (errata 5): the first is between classes, the
    second within them, and the paper's ratio is the first over the second.
    """
    z = points.double()
    centre = z.mean(dim=0)
    between = within = 0.0
    for label in labels.unique():
        mine = z[labels == label]
        between += len(mine) * float((mine.mean(dim=0) - centre).square().sum())
        within += float((mine - mine.mean(dim=0)).square().sum())
    return between / len(z), within / len(z)


def last_hidden(network: nn.Module, samples: Samples, batch_size: int = 1000) -> Float[Tensor, "samples features"]:
    """Inputs of the last linear layer, on the CPU."""
    last = [module for module in unwrap(network).modules() if isinstance(module, nn.Linear)][-1]
    seen: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().flatten(1).cpu()))
    try:
        predict(network, samples.x, batch_size=batch_size)
    finally:
        handle.remove()
    return torch.cat(seen)


def tsne(features: Float[Tensor, "samples features"], seed: int) -> Float[Tensor, "samples 2"]:
    """t-SNE of scikit-learn with its own settings (perplexity 30, or what few samples allow)."""
    from sklearn.manifold import TSNE

    # The default init is PCA, which a constant layer does not have.
    alive = bool((features.std(dim=0) > 0).any())
    made = TSNE(perplexity=min(30.0, (len(features) - 1) / 3), init="pca" if alive else "random", random_state=seed)
    return torch.from_numpy(made.fit_transform(features.double().numpy()))
