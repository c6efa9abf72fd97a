"""The samples of a trial: part of a data set, held out, subsampled, with flipped labels, all by the trial's seed."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from widemargin import data
from widemargin.data import Data, Samples
from widemargin.data.seeds import generator
from widemargin.studies.settings import Settings, check_keys

_KEYS = (
    *("name", "pca", "standardize", "train", "fraction", "balanced"),
    *("validation", "flips", "flip_validation", "test"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """What a trial trains on, chooses by, and is judged by at the end."""

    train: Samples
    validation: Samples
    whole: Data[Samples]
    test_count: int | None

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.whole.classes)

    @property
    def test(self) -> Samples:
        """The test set; never read while hyperparameters are searched."""
        return first(self.whole.test, self.test_count)


def prepare(settings: Settings, seed: int, *, root: Path | None = None, device: str = "cpu") -> Parts:
    """The samples that `settings` describe, on the device.

    Keys: `name` of a data set, "synthetic" (see `synthetic`) or "breast-cancer" (see `breast_cancer`); `pca`, how many
    principal components of its training part stand for an input (sokolic §V; by default none do); `standardize`: each
    channel of images, or feature of a table, with mean 0 and deviation 1 over its training part; `validation`, how
    many training samples are held out; `train` or `fraction`, how many of the others are trained on (all by default;
    `balanced`: equally many of each class); `flips`, the share of them that gets another label (`flip_validation`: the
    held-out ones as well); `test`, how many test samples are read, from the first on (by default all).

    Everything is drawn by `seed` alone: all arms of one seed see the same samples with the same labels, smaller subsets
    lie inside larger ones, and labels flipped at 20 % are flipped at 40 %.
    """
    known = (*_KEYS, "shape", "samples") if settings["name"] == "synthetic" else _KEYS
    check_keys(settings, known, "data")
    shape = None if settings.get("shape") is None else tuple(settings["shape"])
    whole = _whole(settings["name"], root, device, shape, settings.get("samples"))
    if (dims := settings.get("pca")) is not None:
        whole = _projected(whole, dims)
    if settings.get("standardize"):
        whole = _standardized(whole)
    train, validation = _held_out(whole, settings["validation"], seed)
    count, fraction = settings.get("train"), settings.get("fraction")
    if count is not None or fraction is not None:
        train = _subset(train, count, fraction, seed, bool(settings.get("balanced")))
    if flips := settings.get("flips"):
        train = data.flip_labels(train, flips, seed, len(whole.classes))
        if settings.get("flip_validation"):
            validation = data.flip_labels(validation, flips, seed + 1_000_000, len(whole.classes))
    return Parts(train=train, validation=validation, whole=whole, test_count=settings.get("test"))


def synthetic(shape: tuple[int, ...], samples: int, classes: int = 10) -> Data[Samples]:
    """Images of the right shape where the real ones are too many: a pattern for each class plus noise, in [0, 1].

    For trials of the machinery, never for a verdict. Half as many samples are the test set.
    """
    draw = generator("synthetic", 0)
    patterns = torch.rand((classes, *shape), generator=draw)

    def part(count: int) -> Samples:
        y = torch.arange(count) % classes
        return Samples(0.7 * patterns[y] + 0.3 * torch.rand((count, *shape), generator=draw), y)

    names = tuple(map(str, range(classes)))
    return Data("synthetic", part(samples), part(max(classes, samples // 2)), names, (0.0, 1.0))


def breast_cancer() -> Data[Samples]:
    """scikit-learn's 569 samples of 30 features in two classes, 200 of them for testing."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    every = Samples(torch.tensor(bunch.data, dtype=torch.float32), torch.tensor(bunch.target, dtype=torch.int64))
    train, test = data.holdout(every, 200, seed=0)
    return Data("breast-cancer", train, test, tuple(map(str, bunch.target_names)), None)


@functools.lru_cache(maxsize=8)
def _whole(
    name: str, root: Path | None, device: str, shape: tuple[int, ...] | None, samples: int | None
) -> Data[Samples]:
    if name == "synthetic":
        if shape is None or samples is None:
            raise ValueError("data 'synthetic' needs a shape and a number of samples")
        loaded = synthetic(shape, samples)
    elif name == "breast-cancer":
        loaded = breast_cancer()
    else:
        loaded = data.load(name, root)
    return replace(loaded, train=loaded.train.to(device), test=loaded.test.to(device))


@functools.lru_cache(maxsize=2)
def _projected(whole: Data[Samples], dims: int) -> Data[Samples]:
    return whole.map(data.Pca.fit(whole.train, dims))


@functools.lru_cache(maxsize=4)
def _standardized(whole: Data[Samples]) -> Data[Samples]:
    x = whole.train.x
    dims = [0, *range(2, x.ndim)]
    mean, deviation = x.mean(dim=dims, keepdim=True), x.std(dim=dims, keepdim=True) + 1e-6
    return whole.map(lambda part: replace(part, x=(part.x - mean) / deviation))


# Cached, so that trials of one seed share their inputs: a population then keeps them once.
@functools.lru_cache(maxsize=16)
def _held_out(whole: Data[Samples], count: int, seed: int) -> tuple[Samples, Samples]:
    return data.holdout(whole.train, count, seed)


@functools.lru_cache(maxsize=64)
def _subset(train: Samples, count: int | None, fraction: float | None, seed: int, balanced: bool) -> Samples:
    return data.subset(train, count=count, fraction=fraction, seed=seed, balanced=balanced)


def first(samples: Samples, count: int | None) -> Samples:
    """The first `count` samples, or all."""
    if count is None or count >= len(samples):
        return samples
    return samples.select(torch.arange(count, device=samples.y.device))
