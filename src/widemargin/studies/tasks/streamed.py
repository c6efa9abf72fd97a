"""Training of a classifier on images that do not fit into memory, and attacks on it (elsayed, §4.4).

Settings:

    data        {"name": "imagenet", "size": 299}, or {"name": "synthetic", "shape": [3, 299, 299], "samples": 8};
                `workers`: processes that read images
    network, loss, optimizer, schedule    as of `classify`; the schedule's unit is a share of the training
    epochs, batch
    attacks     a list of {"curve": …, "attack": "fgsm", "epsilons": […]}, with `source` for a black-box attack, see
                `studies.measurements`
    count       how many test images, drawn by the seed, are attacked and counted (None: all)

Row: `accuracy` on the test images that are attacked, and points of the attacks' curves. There is no search: the paper
gives its settings, and there is no `validation`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset

from widemargin import attacks, registry, training
from widemargin.data import Data, Samples
from widemargin.data.imagenet import load_imagenet
from widemargin.data.seeds import generator
from widemargin.studies import networks, samples
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys, digest
from widemargin.studies.tasks.augmented import fit_options
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
_TRAINING = ("data", "network", "loss", "optimizer", "schedule", "epochs", "batch")
_KEYS = (*_TRAINING, "attacks", "count")


def run(trial: Trial, context: TrialContext) -> Row:
    """One training, or its weights from the cache, and the attacks."""
    given = trial.settings
    check_keys(given, _KEYS)
    if trial.stage == "search":
        raise ValueError("the task 'streamed' has no search: give its arms no search")
    network = _trained(given, trial.seed, context)
    test = _test(_data(given["data"], context), given.get("count"), trial.seed, given["batch"])
    curve = partial(attacks.curve, network, test, bounds=(0.0, 1.0), batch_size=given["batch"], progress=False)
    clean = curve([0.0])
    points = []
    for attack in given.get("attacks", ()):
        source = None if attack.get("source") is None else _trained(attack["source"], trial.seed, context)
        rows = curve(attack["epsilons"], attack=attack["attack"], source=source, seed=trial.seed)
        points += [{"curve": attack["curve"], "at": {"epsilon": r["epsilon"]}, "accuracy": r["accuracy"]} for r in rows]
    return {"accuracy": clean[0]["accuracy"], "samples": clean[0]["samples"], "points": points}


def _trained(settings: Settings, seed: int, context: TrialContext) -> nn.Module:
    given = {key: settings[key] for key in _TRAINING}
    key = digest(["streamed", VERSION, given, seed])
    build = partial(networks.build, given["network"], seed)
    kept = networks.load(context.weights, key, build)
    if kept is not None:
        return kept[0].to(context.device)
    train: Any = _data(given["data"], context).train
    if not isinstance(train, Samples):
        train = DataLoader(
            train,
            batch_size=given["batch"],
            shuffle=not isinstance(train, IterableDataset),
            num_workers=given["data"].get("workers", 0),
            drop_last=True,
        )
    fitted = training.fit(
        build(),
        train,
        loss=registry.loss(given["loss"]),
        **fit_options(given, seed),
        devices=training.Devices.of(context.device),
    )
    networks.save(context.weights, key, fitted.model, {})
    return fitted.model


def _data(settings: Settings, context: TrialContext) -> Data[Any]:
    if settings["name"] == "synthetic":
        return samples.synthetic(tuple(settings["shape"]), settings["samples"])
    if settings["name"] != "imagenet":
        raise ValueError(f"name of data is {settings['name']!r}, expected 'imagenet' or 'synthetic'")
    return load_imagenet(context.root, size=settings["size"])


def _test(data: Data[Any], count: int | None, seed: int, batch: int) -> Any:
    """Test images: of a folder any `count` of them, since they lie class by class; of a stream the first ones."""
    test: Any = data.test
    if isinstance(test, IterableDataset):
        if count is None:
            return DataLoader(test, batch_size=batch)
        firsts = [one for one, _ in zip(test, range(count))]
        return Samples(torch.stack([x for x, _ in firsts]), torch.stack([y for _, y in firsts]))
    if count is None or count >= len(test):
        return test
    drawn = torch.randperm(len(test), generator=generator("test images", seed))[:count].sort().values
    return test.select(drawn) if isinstance(test, Samples) else Subset(test, drawn.tolist())
