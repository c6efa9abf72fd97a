"""Measure, maximise, control and bound the classification margins of deep networks in PyTorch.

The public names are resolved when they are first used, so that `import widemargin` costs little and the report, which
only reads result files, never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from widemargin import (
        attacks,
        bounds,
        certify,
        control,
        data,
        diagnostics,
        geometry,
        gp,
        integrations,
        layers,
        losses,
        margins,
        models,
        norms,
        optim,
        places,
        population,
        regularizers,
        training,
    )
    from widemargin.certify.bracket import bracket
    from widemargin.diagnostics.explanation import explain
    from widemargin.diagnostics.generalization_gap import predict_gap
    from widemargin.diagnostics.label_issues import label_issues
    from widemargin.losses.wide_margin import WideMargin
    from widemargin.margins.measurement import measure
    from widemargin.training.fit import fit

# No module of the package may have one of these names: importing it would put the module in the function's place.
_NAMES = {
    "WideMargin": "losses.wide_margin",
    "bracket": "certify.bracket",
    "explain": "diagnostics.explanation",
    "fit": "training.fit",
    "label_issues": "diagnostics.label_issues",
    "measure": "margins.measurement",
    "predict_gap": "diagnostics.generalization_gap",
}

__all__ = [
    "WideMargin",
    "__version__",
    "attacks",
    "bounds",
    "bracket",
    "certify",
    "control",
    "data",
    "diagnostics",
    "explain",
    "fit",
    "geometry",
    "gp",
    "integrations",
    "label_issues",
    "layers",
    "losses",
    "margins",
    "measure",
    "models",
    "norms",
    "optim",
    "places",
    "population",
    "predict_gap",
    "regularizers",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'widemargin' has no attribute {name!r}")
    module = importlib.import_module(f"widemargin.{_NAMES.get(name, name)}")
    return getattr(module, name) if name in _NAMES else module


def __dir__() -> list[str]:
    return __all__
