"""A valid call of each public function, on a small network and six samples."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

import widemargin as wm
from bad_values import BAD, Of, kind
from widemargin import bounds, data, geometry, gp, losses, margins, optim, places, training


@functools.cache
def network() -> nn.Sequential:
    """A small network that every function can read."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)).eval()


@functools.cache
def binary() -> nn.Sequential:
    """The same with one score."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 1, bias=False)).eval()


def built() -> nn.Sequential:
    """A new binary network."""
    return nn.Sequential(nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 1, bias=False))


X = torch.rand(6, 2, generator=torch.Generator().manual_seed(2)) * 0.8 + 0.1
Y = torch.tensor([0, 1, 2, 0, 1, 2])
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
SAMPLES = data.Samples(X, Y)
SIGNED = data.Samples(X, SIGNS)
FEW = data.Samples(X[:2], SIGNS[:2])


MANY_X = torch.rand(60, 2, generator=torch.Generator().manual_seed(3))
with torch.no_grad():
    MANY = data.Samples(MANY_X, network()(MANY_X).argmax(dim=1))


@functools.cache
def scores() -> Tensor:
    """Scores of `X`."""
    return network()(X).detach()


@functools.cache
def piece() -> Any:
    """A slice through the network."""
    return geometry.slice2d(network(), torch.zeros(2), torch.tensor([1.0, 0]), torch.tensor([0, 1.0]), (-1, 1, -1, 1))


@functools.cache
def posterior() -> Any:
    """A posterior of three points."""
    sphere = data.to_sphere(X)
    return gp.posterior(sphere[:3], SIGNS[:3], sphere[3:], 3)


def watched(**given: Any) -> Any:
    """`margins.distance` of a watched pass."""
    with places.watch(network(), ("input",)) as at:
        found = network()(X)
    given = {"at": at, **given}
    return margins.distance(**{**given, "scores": found if given["scores"] is SCORES else given["scores"]})


def of_margin_loss(y: Any, at: Any = None) -> Any:
    """`MarginLoss.of` of a watched pass; `at` changes the watched places."""
    with places.watch(network(), ("input",)) as own:
        found = network()(X)
    return losses.MarginLoss().of(found, y, at=own if at is None else at)


def another_pass(_: Any) -> Any:
    """Places that were watched in another forward pass."""
    with places.watch(network(), ("input",)) as at:
        network()(X)
    return at


BAD["at"] = kind((3, "input"), (Of("another pass", another_pass),))


def watching(model: Any, places: Any, statistics: Any = None) -> Any:
    """`places.watch` around a pass."""
    with wm.places.watch(model, places, statistics=statistics) as at:
        model(X)
    return at


MODEL_X = {"model": network(), "x": X}
CHAIN = {**MODEL_X, "y": Y}
LABELS = {**MODEL_X, "y": Y}
SETTINGS = {
    "data": SAMPLES,
    "validation": SAMPLES,
    "loss": losses.CrossEntropy(),
    "epochs": 1,
    "callbacks": (training.ProgressBar(show=False),),
}
TRAINED = {"train": FEW, "test": FEW, "until": 1e-6, "steps": 2, "progress": False}

SCORES = network()(X)
"""In a call of `margins.distance` those of the watched pass."""

CALLS: dict[str, dict[str, Any]] = {
    "fit": {"model": network(), **SETTINGS},
    "measure": {"model": network(), "data": SAMPLES},
    "explain": {**CHAIN, "search": "own", "steps": 2},
    "label_issues": {"build": None, "data": SAMPLES, "folds": 2, "epochs": 1, "device": "cpu", "progress": False},
    "predict_gap": {"model": network(), "train": MANY},
    "bracket": {**CHAIN, "search": "own", "attack_steps": 2, "steps": 2},
    "attacks.curve": {"model": network(), "data": SAMPLES, "epsilons": [0.1]},
    "attacks.fgsm": {**CHAIN, "epsilon": 0.1},
    "attacks.ifgsm": {**CHAIN, "epsilon": 0.1},
    "attacks.pgd": {**CHAIN, "epsilon": 0.1, "steps": 2},
    "attacks.gaussian": {"x": X, "sigma": 0.1},
    "attacks.minimal": {**CHAIN, "search": "own", "steps": 2},
    "attacks.Adversarial": {},
    "bounds.GaussianMixture": {"components": 2, "rank": 2},
    "bounds.SparseDictionary": {"atoms": 5, "sparsity": 2},
    "bounds.cushions": MODEL_X,
    "bounds.growth": {"depths": (1, 2), "margins": (0.1, 0.2), "x": X, "covering": bounds.GreedyCovering()},
    "bounds.input_margin": LABELS,
    "bounds.neyshabur": {"model": binary(), "x": X},
    "bounds.odn": {**LABELS, "r": 2.0, "theta": 1.0},
    "bounds.robustness": {
        "margins": bounds.Certificate(what="here", values=torch.full((6,), 0.1)),
        "x": X,
        "classes": 3,
        "covering": bounds.GreedyCovering(),
    },
    "bounds.spectral": {**LABELS, "margin": 1.0},
    "certify.margin_bound": {**CHAIN, "radius": 0.1},
    "certify.radius": {**CHAIN, "steps": 2, "start": torch.full((6,), 0.1)},
    "control.normalized_margin": {"model": built(), "data": SIGNED, "target": 1.0, "steps": 2, "progress": False},
    "control.rejection_twins": {"builder": built, **TRAINED, "pairs": 1, "most_draws": 4000, "device": "cpu"},
    "control.attacked_twins": {"builder": built, **TRAINED, "attack": SIGNED, "device": "cpu"},
    "data.Samples": {"x": X, "y": Y},
    "data.add_noise": {"samples": SAMPLES, "sigma": 0.1, "seed": 0},
    "data.batches": {"data": SAMPLES},
    "data.flip_labels": {"samples": SAMPLES, "fraction": 0.2, "seed": 0, "classes": 3},
    "data.holdout": {"samples": SAMPLES, "count": 2, "seed": 0},
    "data.load": {"name": "digits"},
    "data.load_files": {"source": "no such file.npz"},
    "data.read": {"data": SAMPLES},
    "data.subset": {"samples": SAMPLES, "count": 6, "seed": 0},
    "data.to_sphere": {"data": X},
    "data.to_unit_range": {"data": X},
    "data.Pca.fit": {"train": SAMPLES, "dims": 1},
    "diagnostics.margin_signature": {"model": network(), "train": MANY},
    "geometry.affine": {"model": network(), "x": X[:1]},
    "geometry.average_jacobian": {"model": network(), "x": X, "x2": X + 0.1},
    "geometry.curves": {"model": network(), "x": X[:1], "label": network()(X[:1]).argmax(1)},
    "geometry.exact_margin": {"piece": piece(), "points": X, "y": Y, "outside": "edge"},
    "geometry.jacobian": MODEL_X,
    "geometry.jacobian_margin": LABELS,
    "geometry.line": {"model": network(), "x": X[0], "x2": X[1]},
    "geometry.norm_chain": {"model": network(), "x": X, "x2": X + 0.1},
    "geometry.outlines": {"piece": piece(), "size": 100.0},
    "geometry.pattern": MODEL_X,
    "geometry.plain": {"piece": piece()},
    "geometry.sets": {"model": network(), "x": X[:1], "label": network()(X[:1]).argmax(1), "points": X},
    "geometry.slice2d": {
        "model": network(),
        "origin": torch.zeros(2),
        "u": torch.tensor([1.0, 0]),
        "v": torch.tensor([0, 1.0]),
        "box": (-1, 1, -1, 1),
    },
    "gp.ensemble": {"posterior": posterior(), "members": 2, "seed": 0},
    "gp.expected_accuracy": {"posterior": posterior(), "y": SIGNS[:3], "members": 2},
    "gp.finite_ensemble": {"predictions": torch.randn(4, 3), "y": SIGNS[:3]},
    "gp.kernel": {"x1": data.to_sphere(X), "x2": data.to_sphere(X), "depth": 2},
    "gp.posterior": {
        "train_x": data.to_sphere(X)[:3],
        "train_y": SIGNS[:3],
        "test_x": data.to_sphere(X)[3:],
        "depth": 2,
    },
    "layers.form_of": {"module": nn.Linear(2, 3), "x": X},
    "layers.read_chain": MODEL_X,
    "losses.WideMargin": {},
    "losses.Band": {},
    "losses.Criterion": {"loss": losses.CrossEntropy()},
    "losses.CropsAndFlips": {},
    "losses.CrossEntropy": {},
    "losses.GeneralizedCrossEntropy": {},
    "losses.Hinge": {},
    "losses.MarginLoss": {},
    "losses.MultiClassHinge": {},
    "losses.ScoreCriterion": {"criterion": nn.functional.cross_entropy},
    "losses.Target": {},
    "losses.Weighted": {"loss": losses.CrossEntropy(), "classes": (1.0, 1.0, 2.0)},
    "losses.as_loss": {"loss": losses.CrossEntropy()},
    "losses.balanced_weights": {"y": Y},
    "losses.large_margin": {},
    "losses.margin_backward": {"model": network(), "loss": losses.MarginLoss(), "x": X, "y": Y},
    "losses.mean": {"loss": losses.CrossEntropy()},
    "losses.odn": {},
    "losses.odn_hinge": {},
    "margins.Distribution.of": {"margins": torch.rand(4)},
    "margins.by_class": {"margins": torch.rand(6), "y": Y},
    "margins.differences": {"scores": scores(), "y": Y},
    "margins.distance": {"scores": SCORES, "y": Y},
    "margins.estimate": CHAIN,
    "margins.from_probabilities": {"model": nn.Sequential(network(), nn.Softmax(dim=1))},
    "margins.output": {"scores": scores(), "y": Y},
    "margins.valid": {"distances": torch.rand(4)},
    "models.ScaledReLU": {},
    "models.build": {"name": "toy-mlp"},
    "models.describe": {"name": "toy-mlp"},
    **{f"models.{name}": {} for name in ("elsayed_toy", "mnist_cnn", "odn_cnn", "farhang_cnn")},
    "models.alexnet": {"hidden": (8,)},
    "models.farhang_mlp": {"width": 8},
    **{f"models.{name}": {} for name in ("resnet", "sokolic_cnn", "sokolic_mlp", "toy_mlp", "vit", "wide_resnet")},
    "optim.Nero": {"params": [nn.Parameter(torch.randn(3, 2))]},
    "optim.Projected": {
        "optimizer": torch.optim.SGD([nn.Parameter(torch.randn(3, 2))], lr=0.1),
        "projection": optim.to_frobenius_sphere,
    },
    "optim.param_groups": {"model": network()},
    "optim.to_centred_unit_rows": {"weight": torch.randn(3, 4)},
    "optim.to_frobenius_sphere": {"weight": torch.randn(3, 4)},
    "optim.to_spectral_sphere": {"weight": torch.randn(3, 4)},
    "population.build": {"builder": built, "seeds": [0, 1]},
    "population.fit": {
        "networks": [built(), built()],
        "data": SIGNED,
        "loss": losses.CrossEntropy(),
        "optimizer": training.SGD(lr=0.1),
        "steps": 1,
        "device": "cpu",
        "progress": False,
    },
    "regularizers.ClassifierPenalty": {"weight": 0.1},
    "regularizers.Jacobian": {},
    "regularizers.JacobianFrobenius": {},
    "regularizers.WeightDecay": {"weight": 0.1},
    "training.SGD": {"lr": 0.1},
    "training.AdamW": {},
    "training.Checkpoint": {"folder": "here"},
    "training.Devices": {},
    "training.BestWeights": {},
    "training.EarlyStopping": {},
    "training.Exponential": {"factor": 0.9},
    "training.Measure": {},
    "training.Nero": {},
    "training.ProgressBar": {},
    "training.RMSprop": {},
    "training.Steps": {"at": (1,), "factors": (0.1,)},
    "training.StopFailed": {},
    "training.TensorBoard": {"folder": "here"},
    "training.WarmUp": {"epochs": 1},
    "norms.dual": {"p": 2.0},
    "norms.check_p": {"p": 2.0},
    "norms.lp": {"x": X, "p": 2.0},
    "norms.steepest": {"gradient": X, "p": 2.0},
    "norms.frobenius": {"weight": torch.randn(3, 4)},
    "norms.two_one": {"weight": torch.randn(3, 4)},
    "norms.spectral": {"weight": torch.randn(3, 4)},
    "norms.spectral_of_layer": {"layer": nn.Linear(2, 3), "input_shape": (2,)},
    "places.watch": {"model": network(), "places": ("input",)},
    "places.check_places": {"model": network(), "places": ("input",)},
    "normalized.frobenius": CHAIN,
    "normalized.spectral": CHAIN,
    "normalized.spectral_complexity": MODEL_X,
    "normalized.operator_norms": MODEL_X,
    "losses.MarginLoss.of": {"y": Y},
    **{f"losses.{name}.__call__": CHAIN for name in ("CrossEntropy", "GeneralizedCrossEntropy", "MultiClassHinge")},
    **{f"losses.{name}.__call__": CHAIN for name in ("SoftHinge", "Target", "MarginLoss", "WideMargin", "Weighted")},
    **{f"losses.{name}.of": {"scores": scores(), "y": Y} for name in ("CrossEntropy", "SoftHinge", "Target")},
    **{f"regularizers.{name}.__call__": CHAIN for name in ("Jacobian", "JacobianFrobenius")},
    "losses.CropsAndFlips.__call__": {
        "model": nn.Sequential(nn.Flatten(), nn.Linear(2, 3)),
        "x": X.view(6, 1, 2, 1),
        "y": Y,
    },
    "attacks.Adversarial.__call__": CHAIN,
}
