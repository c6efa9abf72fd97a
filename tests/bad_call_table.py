"""Bad calls of the public functions, as one table: function × argument × bad value → type of the error.

`valid_calls.CALLS` has a valid call of each public function, `ARGUMENTS` the kind of each argument by its name, and
`bad_values.BAD` the bad values of each kind. A call holds where it ends in the error of its row, raised by the package
itself, in one line that names the argument.
"""

from __future__ import annotations

import inspect
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import widemargin as wm
from bad_values import BAD
from valid_calls import CALLS, of_margin_loss, watched, watching
from widemargin import losses, margins
from widemargin.margins import normalized

SOURCE = str(Path(wm.__file__).parent)
PACKAGES = (
    *(one for name in wm.__all__ if name != "integrations" and isinstance(one := getattr(wm, name), types.ModuleType)),
    normalized,
)
"""Public packages and modules; `integrations` have tests of their own, since their libraries take seconds to import."""

ARGUMENTS: dict[str, str] = {}
for _kind, _names in {
    "model": "model",
    "x": "x",
    "rows": "x1 x2 points train_x test_x distances values gradient",
    "labels": "y train_y label",
    "data": "data",
    "samples": "samples train",
    "number": "sigma fraction",
    "positive": "epsilon step radius weight lr strength gamma alpha mu r theta momentum weight_decay eps q clip size "
    "label_smoothing cross_entropy tolerance reach delta margin jitter factor every seconds until gradient_clip share "
    "scale product classifier patience beta",
    "count": "steps count batch_size targets members draws depth probes directions max_cells pixels components rank "
    "atoms sparsity attack_steps epochs folds pairs most_draws measure_every width layers channels inputs outputs "
    "in_channels kernel stride first higher patch heads depth widen base groups dims chunk projections axis repeats "
    "crop",
    "choice": "method search read_as biases attack jacobian cushion_form log_form convolutions inputs aggregate kind "
    "statistics stabilize form second_order mode precision reduction norm outside split accelerator strategy",
    "flag": "random_start progress balanced normalize covariance signed cells nesterov show verify cuda_graph dropout "
    "augmented flip batch_norm he plain classifier_bias auxiliary project eps_inside_sqrt",
    "seed": "seed",
    "places": "at places",
    "bounds": "bounds",
    "p": "p",
    "callable": "builder optimizer schedule then",
    "name": "name capability",
    "several": "epsilons regularizers callbacks seeds networks",
    "object": "covering margins posterior piece penalty loss",
    "scores": "scores predictions",
    "others": "classes",
    "counts": "widths hidden blocks",
    "index": "index",
}.items():
    ARGUMENTS |= dict.fromkeys(_names.split(), _kind)

OTHER: dict[str, dict[str, str]] = {
    "fit": {"model": "trained", "validation": "data", "devices": "object", "checkpoint": ""},
    "explain": {"at": "place", "classes": "iterable", "names": "iterable"},
    "label_issues": {"build": "callable", "classes": "iterable", "device": "", "data": "read"},
    "predict_gap": {"train": "data", "samples": "count", "gap_model": "object"},
    "attacks.curve": {"source": "module", "attack": "attack"},
    "attacks.pgd": {"p": "choice"},
    "attacks.Adversarial": {"p": "choice"},
    "attacks.gaussian": {"x": "rows"},
    "bounds.robustness": {"classes": "count", "x": "rows"},
    "bounds.growth": {"depths": "several", "margins": "several", "samples": "count", "x": "rows"},
    "bounds.spectral": {"reference": "object"},
    "bounds.": {"model": "chain"},
    "certify.": {"model": "chain", "start": "rows"},
    "control.": {"train": "samples", "test": "samples", "attack": "samples", "device": ""},
    "control.normalized_margin": {"model": "trained", "target": "target"},
    "control.attacked_twins": {"targets": "several"},
    "data.Samples": {"x": "samples' x", "y": "any labels", "classes": "names", "columns": "names"},
    "data.batches": {"classes": "iterable", "data": "read"},
    "data.read": {"classes": "iterable", "data": "read"},
    "data.flip_labels": {"classes": "count"},
    "data.load": {"root": ""},
    "data.load_files": {"source": "", "test": "", "label": ""},
    "data.to_sphere": {"data": "rows"},
    "data.to_unit_range": {"data": "real"},
    "diagnostics.margin_signature": {"train": "data", "samples": "count"},
    "geometry.": {"model": "chain", "points": "rows"},
    "geometry.outlines": {"points": "count"},
    "geometry.line": {"x": "one", "x2": "one"},
    "geometry.slice2d": {"origin": "one", "u": "one", "v": "one", "box": "several"},
    "gp.posterior": {"train_x": "rows"},
    "gp.finite_ensemble": {"sizes": "several"},
    "layers.form_of": {"module": "module", "x": "some tensor"},
    "layers.read_chain": {"model": "chain"},
    "losses.": {"at": "own places", "index": "index", "samples": "count", "directions": ""},
    "losses.WideMargin": {"base": "callable", "every": "count"},
    "losses.MarginLoss": {"classes": "count"},
    "losses.large_margin": {"classes": "count"},
    "losses.Target": {"alpha": "number"},
    "losses.margin_backward": {"model": "trained"},
    "losses.Criterion": {"weight": "weights"},
    "losses.Weighted": {"classes": "weights", "samples": "weights"},
    "losses.balanced_weights": {"classes": "count", "y": "any labels"},
    "losses.ScoreCriterion": {"criterion": "callable"},
    "losses.MarginLoss.of": {"at": "at"},
    "margins.distance": {"at": "at", "second_order": "flag"},
    "margins.linearize": {"at": "at", "second_order": "flag"},
    "margins.Distribution.of": {"margins": "some tensor"},
    "margins.by_class": {"margins": "some tensor", "y": "any labels"},
    "margins.valid": {"distances": "some tensor"},
    "margins.from_probabilities": {"model": "module"},
    "margins.estimate": {"generator": "object"},
    "models.": {"classes": "count", "sigma": "positive", "size": "count", "inputs": "count"},
    "models.mnist_cnn": {"dropout": "positive"},
    "norms.": {"weight": "some rows", "x": "some rows", "gradient": "some rows"},
    "norms.frobenius": {"weight": "some tensor"},
    "norms.spectral": {"weight": "rows"},
    "norms.spectral_of_layer": {"layer": "module", "input_shape": "counts"},
    "normalized.": {"model": "chain", "reference": "module"},
    "optim.": {"weight": "some tensor"},
    "optim.Nero": {"params": "iterable", "foreach": ""},
    "optim.Projected": {"optimizer": "object", "projection": "callable"},
    "optim.param_groups": {"model": "module", "unprojected": "iterable"},
    "places.": {"model": "module"},
    "population.fit": {"loss": "object", "device": ""},
    "regularizers.": {"at": "place"},
    "regularizers.ClassifierPenalty": {"layer": "place"},
    "regularizers.WeightDecay": {"layers": "names"},
    "regularizers.Jacobian.__call__": {"model": "trained", "classes": "index"},
    "regularizers.JacobianFrobenius.__call__": {"model": "trained", "directions": "some object"},
    "training.AdamW": {"betas": "betas"},
    "training.Checkpoint": {"folder": "path", "every": "count"},
    "training.TensorBoard": {"folder": "path"},
    "training.Devices": {"count": "", "backward_memory": "count"},
    "training.BestWeights": {"monitor": "text"},
    "training.EarlyStopping": {"monitor": "text", "patience": "count"},
    "training.Measure": {"at": "own places", "every": "count", "samples": "count"},
    "training.Steps": {"at": "numbers", "factors": "numbers"},
    "training.WarmUp": {"epochs": "positive"},
}
"""Kinds of the arguments of one function or of all of a package; "" where torch or the file system finds the error."""
for _name in CALLS:
    if _name.startswith("losses.") and _name.endswith("__call__"):
        OTHER[_name] = {"model": "trained"}
OTHER["attacks.Adversarial.__call__"] = {"model": "trained"}
WITHOUT = {
    "results": "Minimal Assumption Bound Certificate MarginEstimate Cushions Growth InputMargin NeyshaburBound "
    "OdnBound RobustnessBound SpectralBound Bracket RobustAccuracy Summary AttackedTwins Controlled Twins Batches Data "
    "Pca Explanation Explanations GapPrediction LabelIssues LinearGapModel MarginSignature AffineMap Boundary Curves "
    "Decisions Ellipses Line NormChain Raster Sets Slice Ensemble Posterior Distribution Measurement Description "
    "Population Stack Backward Fit FitState History TrainingStopped At",
    "protocols and base classes": "Attack Loss Penalty ScoreLoss Wrapper Callback",
    "without arguments": "GreedyCovering SoftHinge Constant Cosine default_root names stored_model table",
    "rules of layers, for those who add one": "Affine MaxPool Slopes lookup register rule",
    "inside of other functions": "linearize fit_gap_model inception_v3 moved default_places weights check_watched "
    "largest_singular_value singular_value_upper_bound spectral_upper_bound",
}
"""Public names without a row, and why."""


def public_names() -> set[str]:
    """The names of public functions and classes, without their packages."""
    found = {name for package in (wm, *PACKAGES) for name in getattr(package, "__all__", ())}
    for module in PACKAGES:
        own = {name: one for name, one in vars(module).items() if not hasattr(module, "__all__") and name[0] != "_"}
        found |= {name for name, one in own.items() if getattr(one, "__module__", "") == module.__name__}
    every = {name: getattr(package, name) for package in (*PACKAGES, wm) for name in found & set(dir(package))}
    return {name for name, one in every.items() if inspect.isroutine(one) or inspect.isclass(one)}


@dataclass(frozen=True)
class Cell:
    """One bad call."""

    function: str
    argument: str
    kind: str
    bad: str

    def __str__(self) -> str:
        return f"{self.function}({self.argument}={self.bad})"


def function(name: str) -> Callable[..., Any]:
    """The public function of that name."""
    own: dict[str, Callable[..., Any]] = {
        "margins.distance": watched,
        "losses.MarginLoss.of": of_margin_loss,
        "places.watch": watching,
    }
    if name in own:
        return own[name]
    if name.startswith("normalized."):
        name = f"margins.{name}"
    if name.startswith("losses.Weighted."):
        return losses.Weighted(loss=losses.CrossEntropy(), classes=(1.0, 1.0, 2.0))
    if name == "losses.CropsAndFlips.__call__":
        return losses.CropsAndFlips(crop=0)
    found: Any = wm
    for part in name.split("."):
        found = found() if part == "__call__" or (part == "of" and name.startswith("losses.")) else found
        found = getattr(found, part) if part != "__call__" else found
    return found


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The arguments of a public function."""
    found = inspect.signature(margins.distance if name == "margins.distance" else function(name))
    return {key: one for key, one in found.parameters.items() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)}


def kind_of(name: str, argument: str) -> str | None:
    """The kind of an argument, None where the table has none."""
    tables = (OTHER.get(name, {}), OTHER.get(f"{name.split('.')[0]}.", {}), ARGUMENTS)
    return next((table[argument] for table in tables if argument in table), None)


def cells() -> Iterator[Cell]:
    """All bad calls."""
    for name in CALLS:
        for argument, parameter in parameters(name).items():
            kind = kind_of(name, argument)
            for bad in BAD[kind or ""]:
                if bad != "None" or ("None" not in str(parameter.annotation) and parameter.default is not None):
                    yield Cell(name, argument, kind or "", bad)


OF_DATA = "data|name|x|y|labels|scores|input"
ALIASES = {
    "y": "labels",
    "label": "labels|y",
    "places": "at",
    "x": "scores|input",
    "data": OF_DATA,
    "train": OF_DATA,
    "validation": OF_DATA,
    "model": "network|scores|layer|weights|parameter|gradients",
}
"""Words that name an argument too: data have inputs x and labels y, and a network is known by its scores."""


def outcome(*bad: Cell) -> str:
    """What is wrong with a call of one function with these bad arguments; nothing where it held."""
    given = dict(CALLS[bad[0].function])
    errors: set[type[Exception]] = set()
    for cell in bad:
        change, expected = BAD[cell.kind][cell.bad]
        given[cell.argument] = change(given.get(cell.argument, parameters(cell.function)[cell.argument].default))
        errors |= set(expected)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = function(bad[0].function)(**given)
            if isinstance(found, types.GeneratorType):
                found = list(found)
    except Exception as error:
        wrong = judged(error, [cell.argument for cell in bad], tuple(errors))
    else:
        wrong = f"no error, but {str(found)[:60]!r}"
    return wrong and f"{' and '.join(map(str, bad))}: {wrong}"


def judged(error: Exception, arguments: list[str], errors: tuple[type[Exception], ...]) -> str:
    """What is wrong with an error; nothing where it is of the right type, ours, and names an argument."""
    said = f"{type(error).__name__}: {str(error)[:160]}"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames[-1].filename.startswith(SOURCE) or not str(frames[-1].line).startswith("raise"):
        return f"in others' words: {said}"
    if not isinstance(error, errors):
        return f"another type: {said}"
    words = "|".join((*arguments, *(ALIASES[argument] for argument in arguments if argument in ALIASES)))
    if not re.search(rf"\b({words})\b", str(error)) or "\n" in str(error):
        return f"names something else: {said}"
    return ""
