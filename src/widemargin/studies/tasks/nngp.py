"""The NN-GP posterior of a binary problem (farhang §6.1): accuracy over the margin γ/σ^L and the number of draws.

Settings: `data` (see `studies.spheres.points`, binary), `depth`, `margins` (values of γ/σ^L) and `sizes` (numbers of
draws that are averaged).

Row: `spread` (at γ/σ^L = 1), and the curve "draws": the expected accuracy at each `alpha` and each number of `draws`,
and the relative `spread` of the posterior there.
"""

from __future__ import annotations

from widemargin import gp
from widemargin.gp.ensembles import expected_accuracy
from widemargin.studies.rows import Row
from widemargin.studies.settings import check_keys
from widemargin.studies.spheres import points
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
_KEYS = ("data", "depth", "margins", "sizes")


def run(trial: Trial, context: TrialContext) -> Row:
    """One trial."""
    settings = trial.settings
    check_keys(settings, _KEYS)
    data = points(settings["data"], trial.seed, root=context.root, device=context.device)
    train, test = data.train, data.test
    posterior = gp.posterior(train.x.double(), train.y, test.x.double(), settings["depth"], covariance=False)
    curve = []
    for margin in settings["margins"]:
        at = posterior.at(margin=float(margin))
        for size in settings["sizes"]:
            accuracy = expected_accuracy(at, test.y, size)
            place = {"alpha": margin, "draws": size}
            curve.append({"curve": "draws", "at": place, "accuracy": accuracy, "spread": at.relative_spread})
    return {"spread": posterior.relative_spread, "points": curve}
