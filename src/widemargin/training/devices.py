"""Fabric: devices, precision and processes. It is asked for when a training starts, and not before."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from widemargin._io.optional import not_installed

STRATEGIES = ("auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")
PRECISIONS = (None, "bf16-mixed")


def fabric(*, accelerator: str, devices: int | str | list[int], strategy: str, precision: str | None) -> Any:
    """A Fabric of these settings, from `lightning_fabric` or `lightning.fabric`."""
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}, expected one of {', '.join(map(repr, STRATEGIES))}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}, expected None (that of the network's weights) or 'bf16-mixed'")
    with quiet():
        return _class()(accelerator=accelerator, devices=devices, strategy=strategy, precision=precision or "32-true")


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing of what Fabric logs below a warning."""
    loggers = [logging.getLogger(name) for name in ("lightning_fabric", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def _class() -> Any:
    for name in ("lightning_fabric", "lightning.fabric"):  # on its own, or inside lightning
        try:
            return importlib.import_module(name).Fabric
        except ImportError:
            continue
    raise not_installed("lightning_fabric", "fit")
