"""The network of a command line: a name of the zoo or `module:function`, settings and a weights file."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from widemargin.cli.console import notice
from widemargin.cli.errors import about

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.report.schema import Json


def resolve(model: str, *, settings: Mapping[str, Json], weights: Path | None = None, seed: int = 0) -> nn.Module:
    """Build the network `model` with `settings`, and load `weights` into it.

    Args:
        model: a name of the zoo, or `module:function`, importable from the current directory too.
        settings: the arguments of the builder, see `parse_settings`.
        weights: a safetensors file with exactly the names and shapes of the network's `state_dict`.
        seed: of the weights that the builder draws.
    """
    import torch
    from torch import nn

    from widemargin import models

    if weights is not None and not weights.is_file():
        raise FileNotFoundError(f"--weights is {str(weights)!r}, which is not a file")
    if ":" not in model and model not in models.names() and Path(model).exists():
        raise ValueError(f"--model is {model!r}, a file: give the network's builder as module:function, or a name")
    builder = imported(model) if ":" in model else partial(models.build, model)
    _check_settings(model, builder, settings)
    torch.manual_seed(seed)
    with about("--model"):
        try:
            network = builder(**settings)
        except RuntimeError as error:  # torch's, for sizes that it can't allocate
            raise ValueError(f"{model} can't be built with these settings: {str(error).splitlines()[0]}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"--model is {model!r}, which returned a {type(network).__name__}, expected an nn.Module")
    if weights is not None:
        load_weights(network, weights)
    return network


def names_of_settings(model: str) -> tuple[str, ...]:
    """The names of the settings that the builder of `model` takes."""
    from widemargin import models

    if ":" not in model:
        return tuple(models.describe(model).settings) if model in models.names() else ()
    try:
        return tuple(inspect.signature(imported(model)).parameters)
    except ValueError:  # a builtin without a signature
        return ()


def parse_settings(pairs: Sequence[str]) -> dict[str, Json]:
    """`key=value` pairs as a dict: each value a Python literal, or a bare word that is taken as a string."""
    settings: dict[str, Json] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ValueError(f"--set is {pair!r}, expected key=value such as size=8")
        key = key.strip()
        if key in settings:
            raise ValueError(f"--set has {key!r} twice, expected each setting once")
        settings[key] = _value(pair, value.strip())
    return settings


def imported(model: str, option: str = "--model", returns: str = "an nn.Module") -> Callable[..., object]:
    """The function that `module:function` names, looked for in the current directory first."""
    module_name, _, function_name = model.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise ValueError(f"{option} is {model!r}, expected a name or module:function")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ImportError(f"{option} is {model!r}, but {module_name} can't be imported: {error}") from error
        hint = f"; did you mean {module_name[:-3]}:{function_name}?" if module_name.endswith(".py") else ""
        there = f"there is no module {error.name!r} here or installed"
        raise ImportError(f"{option} is {model!r}, but {there}{hint}") from error
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise ImportError(f"{option} is {model!r}, but {where} is no valid Python: {error.msg}") from error
    function = getattr(module, function_name, None)
    if function is None:
        raise ValueError(f"{option} is {model!r}, but {module_name} has no {function_name!r}")
    if not callable(function) or (not inspect.isclass(function) and hasattr(function, "named_modules")):
        kind = type(function).__name__
        raise TypeError(f"{option} is {model!r}, which is a {kind}, expected a function that returns {returns}")
    return function


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a safetensors file into `network`, or say which name or shape does not fit; no pickle is ever opened."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file, load_model

    try:
        stored: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        advice = "write one with safetensors.torch.save_model(model, path)"
        raise ValueError(f"--weights is {str(path)!r}, which is no safetensors file ({error}); {advice}") from error
    wanted = network.state_dict()
    for name in (name for name in wanted if name in stored):
        there, here = list(stored[name].shape), list(wanted[name].shape)
        if there != here:
            raise ValueError(f"--weights has {name!r} of shape {there}, expected {here}: check the settings (--set)")
    for name, tensor in stored.items():
        known = tensor if tensor.element_size() > 1 else tensor.float()  # torch does not know it of eight bits
        if not bool(known.isfinite().all()):
            raise ValueError(f"--weights has {name!r} with NaN or infinite numbers, expected finite ones")
    # Tied weights are stored under one of their names only: load_model knows them.
    missing, unexpected = load_model(network, path, strict=False)
    lacks = f"lacks {_first(missing)} of the network" if missing else ""
    has = f"has {_first(unexpected)} that the network does not know" if unexpected else ""
    if lacks or has:
        raise ValueError(f"--weights {' and '.join(filter(None, (lacks, has)))}")
    dtypes = {(str(stored[name].dtype), str(wanted[name].dtype)) for name in wanted if name in stored}
    for stored_as, kept_as in sorted((a, b) for a, b in dtypes if a != b):
        notice(f"--weights has numbers of {stored_as}, which become {kept_as} in the network")


def _first(names: Collection[str]) -> str:
    return repr(min(names)) + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _check_settings(model: str, builder: Callable[..., object], settings: Mapping[str, Json]) -> None:
    try:
        signature = inspect.signature(builder)
    except ValueError:  # a builtin without a signature
        return
    try:
        signature.bind(**settings)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "no settings"
        raise TypeError(f"--set does not fit --model {model}, {error}: it takes {known}") from error


def _value(pair: str, value: str) -> Json:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        if re.fullmatch(r"[A-Za-z_][\w.\-]*", value):
            return value
        raise ValueError(f"--set is {pair!r}, expected a value such as 8, 0.5, True, (32, 64) or a word") from error
