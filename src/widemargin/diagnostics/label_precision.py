"""The expected precision of a ranking of labels, between two estimates.

The noise model explains every confident contradiction by a wrong label, as if the networks knew the classes. Networks
that are often wrong contradict right labels too. The lower estimate allows for that: the margins of the labels are a
mixture of those of right and of wrong labels, and those of wrong labels are known if they are random ones, since each
sample can be given another label. Wrong labels that are hard to see make this estimate too low.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int64
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from widemargin.data.seeds import generator
from widemargin.diagnostics.label_noise import NoiseModel

DRAWS = 9
"""Other labels that each sample is given: all of ten classes, of more classes random ones."""

_SMALLEST = 1e-12

TAIL, SEEN = 0.02, 0.05
"""Parts of the labels, and of wrong labels, that a tail has to have for its share of wrong ones to be estimated."""


def margins(model: NoiseModel, labels: Int64[Tensor, " samples"]) -> Float64[Tensor, " samples"]:
    """The mean of the log-odds of y by P(label | x) and by P(class | x, label), if the labels are these.

    The second has the weight of the predictions' reliability: its transition matrix is estimated from predictions, and
    poorly where they are poor.
    """
    weight = model.reliability
    by_label, by_class = _log_odds(model.calibrated, labels), _log_odds(model.posterior(labels), labels)
    return (by_label + weight * by_class) / (1 + weight)


def wrong_probabilities(
    model: NoiseModel, labels: Int64[Tensor, " samples"]
) -> tuple[Float64[Tensor, " samples"], Float64[Tensor, " samples"]]:
    """The probability that each label is wrong: at least, by both estimates, and by the noise model alone."""
    by_model = 1 - model.posterior(labels).gather(1, labels[:, None]).squeeze(1)
    others = [margins(model, other) for other in _other_labels(labels, model.clean.shape[1])]
    return torch.minimum(by_model, by_mixture(margins(model, labels), torch.cat(others))), by_model


def by_mixture(margin: Float64[Tensor, " samples"], of_wrong: Float64[Tensor, " wrong"]) -> Float64[Tensor, " samples"]:
    """The probability that a label with such a margin is wrong, where `of_wrong` are the margins of wrong labels.

    Let F and W be the shares of labels, and of wrong labels, with a margin of at most t. Since no share of right labels
    is negative, the share of wrong labels is at most η = min_t F(t)/W(t) (Blanchard, Lee, Scott 2010), and η·W(t)/F(t)
    of the labels below t are wrong. The probabilities fall with the margin (isotonic regression).
    """
    n = len(margin)
    order = margin.argsort(stable=True)
    counts = torch.arange(1, n + 1, dtype=torch.float64)
    share_of_wrong = torch.searchsorted(of_wrong.sort().values, margin[order], right=True).double() / len(of_wrong)
    is_seen = (counts >= max(5.0, TAIL * n)) & (share_of_wrong > SEEN)
    ratios = torch.where(is_seen, counts / n / share_of_wrong.clamp_min(SEEN), torch.inf)
    eta = min(1.0, float(ratios.min()))
    found = torch.minimum(n * eta * share_of_wrong, counts)
    steps = torch.diff(found, prepend=found.new_zeros(1))
    fitted = IsotonicRegression(increasing=False, y_min=0.0, y_max=1.0).fit_transform(counts.numpy(), steps.numpy())
    result = torch.empty_like(margin)
    result[order] = torch.from_numpy(fitted).double()
    return result


def _other_labels(labels: Int64[Tensor, " samples"], classes: int) -> list[Int64[Tensor, " samples"]]:
    if classes - 1 <= DRAWS:
        return [(labels + shift) % classes for shift in range(1, classes)]
    rng = generator("other labels", 0)
    return [(labels + torch.randint(1, classes, labels.shape, generator=rng)) % classes for _ in range(DRAWS)]


def _log_odds(p: Float64[Tensor, "samples classes"], labels: Int64[Tensor, " samples"]) -> Float64[Tensor, " samples"]:
    label = labels[:, None]
    others = p.scatter(1, label, 0.0).sum(dim=1)  # not 1 − p, which would round to zero
    return (p.gather(1, label).squeeze(1).clamp_min(_SMALLEST) / others.clamp_min(_SMALLEST)).log()
