"""Points of farhang's studies: a few samples, standardised, on the sphere of radius √d_0, with their labels."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from widemargin.data import Samples, subset, to_sphere
from widemargin.data.seeds import generator
from widemargin.studies import samples
from widemargin.studies.settings import Settings, check_keys, plain

_KEYS = ("name", "shape", "samples", "test", "train", "pair", "parity", "labels", "attack", "standardize")


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    """`clean` points to train on, `more` of them with random labels (None without an attack), and a test set."""

    clean: Samples
    more: Samples | None
    test: Samples

    @property
    def train(self) -> Samples:
        """All points to train on."""
        if self.more is None:
            return self.clean
        return Samples(torch.cat([self.clean.x, self.more.x]), torch.cat([self.clean.y, self.more.y]))


def points(settings: Settings, seed: int, *, root: Path | None = None, device: str = "cpu") -> Points:
    """The points that `settings` describe, drawn by `seed`, on the device.

    Keys: `name`, `shape`, `samples` and `test` as of `studies.samples.prepare`; `train`, how many points (None: all);
    `pair`, two classes that become −1 and +1, the others being left out, equally many of each; `parity`, even classes
    become −1 and odd ones +1; `labels`, "true" or "random"; `attack`, how many more points with random labels;
    `standardize`, (x − first)/second before the projection (MNIST: 0.1307 and 0.3081 in the authors' code).
    """
    check_keys(settings, _KEYS, "data")
    return _points(json.dumps(plain(settings), sort_keys=True), seed, root, device)


# Cached, so that networks of a population share their points.
@functools.lru_cache(maxsize=32)
def _points(written: str, seed: int, root: Path | None, device: str) -> Points:
    settings = json.loads(written)
    base = {key: settings[key] for key in ("name", "shape", "samples", "test") if key in settings}
    parts = samples.prepare({**base, "validation": 1}, seed, root=root, device=device)
    train, test = (_relabelled(part, settings) for part in (parts.whole.train, parts.test))
    count, attack = settings.get("train"), settings.get("attack") or 0
    if count is not None:
        train = subset(train, count=count + attack, seed=seed, balanced=settings.get("pair") is not None)
    centre, scale = settings.get("standardize") or (0.0, 1.0)
    train, test = (to_sphere(replace(part, x=(part.x - centre) / scale)) for part in (train, test))
    clean = samples.first(train, len(train) - attack)
    if settings.get("labels", "true") == "random":
        clean = _random(clean, "random labels", seed)
    if not attack:
        return Points(clean=clean, more=None, test=test)
    rest = torch.arange(len(clean), len(train), device=train.y.device)
    return Points(clean=clean, more=_random(train.select(rest), "attack", seed), test=test)


def _relabelled(part: Samples, settings: Settings) -> Samples:
    pair = settings.get("pair")
    if pair is not None:
        part = part.select(((part.y == pair[0]) | (part.y == pair[1])).nonzero()[:, 0])
        return replace(part, y=torch.where(part.y == pair[1], 1.0, -1.0).to(part.x))
    return replace(part, y=(part.y % 2 * 2 - 1).to(part.x)) if settings.get("parity") else part


def _random(part: Samples, purpose: str, seed: int) -> Samples:
    """With labels drawn uniformly from those there are."""
    kinds = part.y.unique()
    drawn = torch.randint(len(kinds), (len(part),), generator=generator(purpose, seed))
    return replace(part, y=kinds[drawn.to(kinds.device)])
