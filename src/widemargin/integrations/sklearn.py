"""A scikit-learn classifier: a network trained with a loss of this library."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from widemargin import registry
from widemargin.checks import check_count, check_counts, check_module
from widemargin.data.samples import Samples
from widemargin.losses.protocol import Loss
from widemargin.losses.weighted import Weighted
from widemargin.margins.distance import slopes_at
from widemargin.modules import cast_input, evaluating, predict, scores_of
from widemargin.places import INPUT, watch
from widemargin.training.callbacks import Measure, ProgressBar
from widemargin.training.config import Devices
from widemargin.training.fit import fit
from widemargin.training.optimizers import AdamW
from widemargin.training.schedules import Cosine
from widemargin.training.stopping import StopFailed

Module: TypeAlias = nn.Module | Callable[[int, int], nn.Module]
"""A network, or a function (number of features, number of classes) → network."""

STEPS, EPOCHS = 500, 20
"""The default length of a training: 500 steps, but at least 20 epochs."""

FOLDS, HELD_OUT = 5, 50
"""Largest number of folds for the temperature, and held-out samples after which no more are trained."""

BATCH = 1024
"""Samples of a pass of prediction."""


class WideMarginClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network for tables whose decision function is the distance to the decision boundary.

    A multi-layer perceptron, or a network of your own, trained with `wm.fit`. It takes part in pipelines, grid searches
    and cross-validation as every classifier of scikit-learn.

    Args:
        hidden: widths of the hidden layers (ReLU) of the perceptron.
        module: a network of your own instead, or a function (features, classes) → network. A network is copied, and
            trained from the weights that it has. It takes `[batch, features]` and gives a score per class.
        loss: a name of `widemargin.registry.LossName`, or any loss `loss(model, x, y)` → one number per sample.
        epochs: passes over the data; None for 500 steps, and at least 20 epochs.
        batch_size: samples of a step.
        lr: learning rate of AdamW; it falls to 0 along half a cosine.
        standardize: subtract the mean of every feature and divide by its standard deviation, before training and in
            every prediction. Distances are then in standard deviations, otherwise in the units of the features.
        calibrate: fit a temperature to the scores of held-out samples for `predict_proba`. Networks for this are
            trained on up to 5 folds, until 50 samples were held out; the network itself is trained on all samples.
        class_weight: None, "balanced" or a weight for every class, as in scikit-learn.
        device: "auto", "cpu", "cuda", …
        random_state: of initial weights, batches and folds.

    Attributes:
        classes_: the labels.
        network_: the trained network; its inputs are standardized features.
        scaler_: the `StandardScaler`, or None.
        temperature_: `predict_proba` is the softmax of the scores divided by it.
        n_features_in_: number of features.
        feature_names_in_: their names, where `X` was a frame.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (128,),
        *,
        module: Module | None = None,
        loss: str | Loss = "wide-margin",
        epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.01,
        standardize: bool = True,
        calibrate: bool = True,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.module = module
        self.loss = loss
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.standardize = standardize
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state

    def fit(self, X: object, y: object, sample_weight: object = None) -> WideMarginClassifier:
        """Train a new network on the rows of `X` with the labels `y`; `sample_weight` multiplies the losses."""
        table, labels = validate_data(self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=2)
        check_classification_targets(labels)
        weights = self._weights(table, labels, sample_weight)
        if weights is not None:
            table, labels, weights = (part[weights > 0] for part in (table, labels, weights))
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has the one class {self.classes_[0]!r}, expected at least 2 classes")
        self.scaler_: Any = StandardScaler().fit(table, sample_weight=weights) if self.standardize else None
        samples = Samples(self._inputs(table), torch.from_numpy(indices).long())
        weight = None if weights is None else torch.from_numpy(weights / weights.mean()).float()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        start = self._built(seed)
        _check_scores(start, samples.x[:2], len(self.classes_))
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = self._temperature(start, samples, weight, seed)
        self.network_: nn.Module = self._trained(start, samples, weight, seed)
        return self

    def predict(self, X: object) -> Shaped[NDArray[Any], " samples"]:
        """The label of highest score of every row."""
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: object) -> Float[NDArray[Any], "samples classes"]:
        """The probability of every class: the softmax of the scores divided by `temperature_`."""
        return np.exp(log_softmax(self._scores(X) / self.temperature_, axis=1))

    def predict_log_proba(self, X: object) -> Float[NDArray[Any], "samples classes"]:
        """The logarithms of `predict_proba`."""
        return log_softmax(self._scores(X) / self.temperature_, axis=1)

    def decision_function(self, X: object) -> Float[NDArray[Any], ...]:
        """Signed l_2 distances to decision boundaries, to first order; `argmax` and `> 0` give the prediction.

        Two classes: one number a row, the distance to the boundary, positive on the side of `classes_[1]`. More
        classes: for the predicted class the distance to the nearest boundary, and for every other class minus the
        distance to its boundary with the predicted class. A number is very large where the gradient is zero.
        """
        network, x = self._network(), self._rows(X)
        with evaluating(network):
            parts = [_distances(network, part) for part in x.split(BATCH)]
        return torch.cat(parts).numpy()

    def __getstate__(self) -> dict[str, Any]:
        """Plain values; the network as the bytes of a safetensors file."""
        state = dict(super().__getstate__())
        if "network_" in state:
            from safetensors.torch import save

            weights = state.pop("network_").state_dict()
            state["_weights"] = save({name: t.detach().cpu().clone().contiguous() for name, t in weights.items()})
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the network again, on the CPU, and load its weights."""
        values = dict(state)
        weights = values.pop("_weights", None)
        super().__setstate__(values)
        if weights is not None:
            from safetensors.torch import load

            self.network_ = self._built(0)
            self.network_.load_state_dict(load(weights))

    def _weights(self, table: NDArray[Any], labels: NDArray[Any], given: object) -> NDArray[Any] | None:
        """The weights of the samples, or None where all are equal."""
        if given is None and self.class_weight is None:
            return None
        weights: NDArray[Any] = _check_sample_weight(given, table, dtype=np.float64, ensure_non_negative=True)
        return weights if self.class_weight is None else weights * compute_sample_weight(self.class_weight, labels)

    def _built(self, seed: int) -> nn.Module:
        """A new network: the perceptron, a copy of `module`, or what `module` returns."""
        features, classes = self.n_features_in_, len(self.classes_)
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.module is None:
                return perceptron(features, self.hidden, classes)
            network = self.module(features, classes)
        check_module(network, "module(features, classes)")
        return network

    def _trained(self, start: nn.Module, samples: Samples, weight: Tensor | None, seed: int) -> nn.Module:
        network = copy.deepcopy(start)
        loss = registry.loss({"name": self.loss}) if isinstance(self.loss, str) else self.loss
        check_count("batch_size", self.batch_size)
        steps = math.ceil(len(samples) / self.batch_size)
        fit(
            network,
            samples,
            loss=loss if weight is None else Weighted(loss=loss, samples=weight),
            epochs=max(EPOCHS, math.ceil(STEPS / steps)) if self.epochs is None else self.epochs,
            optimizer=AdamW(lr=self.lr),
            schedule=Cosine(),
            batch_size=self.batch_size,
            seed=seed,
            # A table without information is no failure here; values that are not finite are.
            callbacks=[Measure(every=None), ProgressBar(show=False), StopFailed(epochs=10**9)],
            devices=Devices() if self.device == "auto" else Devices.of(self.device),
        )
        return network

    def _temperature(self, start: nn.Module, samples: Samples, weight: Tensor | None, seed: int) -> float:
        """The temperature of the scores of samples that the networks were not trained on."""
        scores, held_out = [], []
        for fold in folds(samples.y, seed):
            rest = torch.ones(len(samples), dtype=torch.bool).index_fill(0, fold, False).nonzero().squeeze(1)
            part = Samples(samples.x[rest], samples.y[rest])
            network = self._trained(start, part, None if weight is None else weight[rest], seed)
            scores.append(predict(network, samples.x[fold], batch_size=BATCH).double().cpu())
            held_out.append(fold)
            if sum(map(len, held_out)) >= HELD_OUT:
                break
        rows = torch.cat(held_out)
        return temperature(
            torch.cat(scores).numpy(), samples.y[rows].numpy(), None if weight is None else weight[rows].numpy()
        )

    def _network(self) -> nn.Module:
        check_is_fitted(self)
        if self.device != "auto":
            return self.network_.to(self.device)
        return self.network_

    def _rows(self, X: object) -> Tensor:
        return self._inputs(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def _inputs(self, table: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(table if self.scaler_ is None else self.scaler_.transform(table), np.float32))

    def _scores(self, X: object) -> Float[NDArray[Any], "samples classes"]:
        network = self._network()
        return predict(network, self._rows(X), batch_size=BATCH).float().cpu().numpy()


def perceptron(features: int, hidden: Sequence[int], classes: int) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them."""
    check_counts("hidden", hidden)
    widths = [features, *hidden]
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def folds(y: Int[Tensor, " samples"], seed: int) -> list[Int[Tensor, " held"]]:
    """Positions of up to `FOLDS` folds with equal shares of every class, in a random order."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    by_class = order[y[order].argsort(stable=True)]
    number = min(FOLDS, len(y))
    return [by_class[i::number] for i in range(number)]


def temperature(
    scores: Float[NDArray[Any], "samples classes"],
    y: Int[NDArray[Any], " samples"],
    weight: Float[NDArray[Any], " samples"] | None = None,
) -> float:
    """The temperature T at which softmax(scores/T) has the smallest mean cross-entropy, weighted by `weight`.

    A share 1/(samples + 2) of every label counts for the other classes, by the rule of succession as in Platt (1999):
    where all samples are classified correctly, the cross-entropy with the labels themselves falls without end as T → 0.
    """
    samples, classes = scores.shape
    other = 1 / (samples + 2) / (classes - 1)
    target = np.full_like(scores, other)
    target[np.arange(samples), y] = 1 - other * (classes - 1)
    size = float(np.abs(scores - scores.mean(axis=1, keepdims=True)).mean()) or 1.0

    def cross_entropy(log_scale: float) -> float:
        losses = -(target * log_softmax(scores / (size * math.exp(log_scale)), axis=1)).sum(axis=1)
        return float(np.average(losses, weights=weight))

    return size * math.exp(minimize_scalar(cross_entropy, bounds=(-7.0, 7.0), method="bounded").x)


def _check_scores(network: nn.Module, x: Tensor, classes: int) -> None:
    shape = list(predict(network, x).shape)
    if shape != [len(x), classes]:
        raise ValueError(
            f"module gives scores of shape {shape} for {len(x)} samples, expected [{len(x)}, {classes}]: one for every "
            "class"
        )


def _distances(network: nn.Module, x: Tensor) -> Tensor:
    """`decision_function` of a batch."""
    with torch.enable_grad(), watch(network, (INPUT,)) as at:
        scores = scores_of(network(cast_input(network, x)))
    is_two = scores.shape[1] == 2
    best = scores.detach().argmax(dim=1, keepdim=True)
    outputs = scores[:, 1:] - scores[:, :1] if is_two else scores - scores.gather(1, best)
    slopes = slopes_at(at, outputs, q=2.0, second_order=False)[INPUT].double()
    limits = torch.finfo(torch.float32)
    distances = (outputs.detach().double() / slopes.clamp_min(limits.tiny)).clamp(limits.min, limits.max).float()
    if is_two:
        return distances.squeeze(1).cpu()
    others = distances.scatter(1, best, -torch.inf)
    return distances.scatter(1, best, -others.amax(dim=1, keepdim=True)).cpu()
