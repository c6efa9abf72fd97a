"""Rules by capability and layer type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from torch import Tensor, nn

from widemargin.checks import check_dense, check_module
from widemargin.layers.forms import Affine, Form, MaxPool, RootMeanSquare, Slopes, Step, Sum

Rule: TypeAlias = Callable[..., Any]
Key: TypeAlias = "type | Callable[..., object] | str"
"""A layer type, a function of torch, or the name of an autograd node."""
WeightGradients: TypeAlias = tuple[Tensor | None, ...]
"""The gradients of the inputs of a node, in their order."""
WeightGradient: TypeAlias = Callable[[Tensor, Tensor], WeightGradients]
"""(gradient that arrives at the node, factor of each of its entries) → gradients of the inputs."""
_R = TypeVar("_R", bound=Rule)

CAPABILITIES: dict[str, str] = {
    "affine": "(module, x) → `Affine`: x ↦ Wx + b in evaluation mode, in float64",
    "pieces": "(module, x) → `Slopes` or `MaxPool`: a piecewise affine map",
    "steps": "(module, x) → several forms in their order, as of a group norm, or the form of several inputs",
    "as_module": "(inputs, output, arguments of a function of torch) → the module that computes the same, or None",
    "relaxation": "(form, regions, rows) → linear bounds on regions of its inputs, of the form that the layer has",
    "lipschitz": "(module, x) → l_2 Lipschitz constant, of a layer without weights",
    "operator_norm": "(module, shape) → spectral norm of a layer with weights, as a linear operator",
    "normalizes": "(module) → True: divides by statistics of its input, so it is not homogeneous",
    "row_axis": "(module) → (axis, groups): where the output units are in the weight (rows of Nero)",
    "jvp": "(function, value, tangent, …) → output and its derivative along the tangent",
    "weight_gradient": "(node, enters) → the parameters' gradients by the gradient that arrives, without autograd",
    "gradient_sums": "(node, gradient) → per-sample gradients of the parameters",
    "stacked": "(module, form) → forward pass of many networks at once inside `vmap`",
    "unstackable": "(module) → why a population can't train it, or None",
}
"""What can be known about a layer: the arguments of a rule → its result. x is an input `[batch, ...]`."""

_ALWAYS_INHERITED = {"row_axis", "normalizes", "unstackable"}
_BY_ATTRIBUTE: dict[str, tuple[str, Rule]] = {
    "pieces": ("slopes", lambda module, _: Slopes.of(module.slopes, type(module).__name__)),
    "lipschitz": ("lipschitz", lambda module, _: float(module.lipschitz)),
}
_FORMS: dict[str, tuple[type[Step], ...]] = {
    "affine": (Affine,),
    "pieces": (Slopes, MaxPool),
    "steps": (RootMeanSquare, Sum),
}
_rules: dict[str, dict[Key, Rule]] = {capability: {} for capability in CAPABILITIES}
_cache: dict[tuple[str, type], Rule | None] = {}


def register(capability: str, *keys: Key) -> Callable[[_R], _R]:
    """Decorator: the function is the rule of `capability` for these layer types, functions or autograd nodes.

    A later registration replaces an earlier one.
    """
    if capability not in CAPABILITIES:
        raise ValueError(f"capability is {capability!r}, expected one of {', '.join(CAPABILITIES)}")
    for key in keys:
        if not (isinstance(key, str) or callable(key)):
            raise TypeError(f"key is {key!r}, expected a class of nn.Module, a function or the name of a node")

    def decorate(function: _R) -> _R:
        _rules[capability].update(dict.fromkeys(keys, function))
        _cache.clear()
        return function

    return decorate


def rule(capability: str, module: object) -> Rule | None:
    """The rule of `capability` for a module (for a form: of `"relaxation"`), or None.

    A subclass has the rules of its parent while it keeps the parent's `forward` (rules about the weight, or of layers
    that are refused, it has always). Modules outside the registry may state their slopes (negative, positive) in an
    attribute `slopes`, and their Lipschitz constant in `lipschitz`.
    """
    name, by_attribute = _BY_ATTRIBUTE.get(capability, ("", None))
    if name and hasattr(module, name):
        return by_attribute
    kind = type(module)
    if (capability, kind) not in _cache:
        _cache[capability, kind] = _inherited(capability, kind)
    return _cache[capability, kind]


def form_of(module: nn.Module, x: Tensor) -> Form | None:
    """The piecewise affine or affine form of a layer on inputs like `x`, or None."""
    check_module(module, "module")
    check_dense(x, "x", "[batch, ...]")
    found = rule("pieces", module) or rule("affine", module)
    form: Form | None = None if found is None else found(module, x)
    return form


def forms_of(module: nn.Module, x: Tensor) -> tuple[Step, ...]:
    """The forms of a layer on inputs like `x` in their order; none if it has no rule."""
    found = rule("steps", module)
    forms: tuple[Step, ...] | None = None if found is None else found(module, x)
    form = form_of(module, x) if forms is None else None
    return forms or (() if form is None else (form,))


def lookup(capability: str) -> dict[Key, Rule]:
    """The rules of `capability` by their exact key, for functions of torch and autograd nodes."""
    return _rules[capability]


def table() -> dict[str, tuple[str, ...]]:
    """Capabilities of every registered layer type, by its name, as far as the registering packages are imported."""
    kinds = {key for rules in _rules.values() for key in rules if isinstance(key, type) and issubclass(key, nn.Module)}
    names = sorted(kinds, key=lambda kind: (kind.__name__.rstrip("123d"), kind.__name__))
    return {kind.__name__: tuple(name for name in CAPABILITIES if _has(name, kind)) for kind in names}


def _has(capability: str, kind: type) -> bool:
    if capability == "relaxation":  # which a layer has through its form
        forms = [form for name, kinds in _FORMS.items() if _inherited(name, kind) for form in kinds]
        return any(form in _rules[capability] for form in forms)
    return _inherited(capability, kind) is not None


def _inherited(capability: str, kind: type) -> Rule | None:
    for parent in kind.__mro__:
        if parent in _rules[capability]:
            same = capability in _ALWAYS_INHERITED or getattr(kind, "forward", None) is getattr(parent, "forward", None)
            return _rules[capability][parent] if same else None
    return None
