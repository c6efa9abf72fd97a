"""CUDA graphs: capture of a function, and training steps that are captured after warm-up and then replayed.

    step = CapturedStep(forward_and_backward, device, model.parameters())  # sets gradients to None, computes them
    for x, y in batches:
        step(x, y)
        optimizer.step()

Small networks are bound by kernel launches, not by arithmetic, and a CUDA graph is one launch. Python code runs only
during the capture. A step that draws random numbers on the CPU (Python, NumPy or torch) would repeat the same numbers
in every replay, so it is not captured.
"""

from __future__ import annotations

import functools
import gc
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from widemargin.checks import check_scores_and_labels

WARM = 3
"""Steps that run before the capture, in which libraries choose their algorithms and workspaces."""

Result: TypeAlias = Tensor | tuple[Tensor, ...] | None
Pool: TypeAlias = Any
"""A handle of memory that several graphs share, from `shared_pool`."""


class CapturedStep:
    """`step(*inputs)` returns `function(*inputs)`: eager at first, then replayed from a CUDA graph of `device`.

    The first `warm_up` calls and every call with inputs of other shapes than the first call's run eagerly. The result
    is the memory that the graph writes to: read or copy it before the next call. `function` must not synchronise with
    the device (`.item()`), and values of scores and labels are not validated in a replay: `before_capture` is called
    once before the capture and may do that. A capture that runs out of memory is an error only with
    `raise_out_of_memory`. Steps with one `pool` share their memory: use result and gradients before another one runs.

    Attributes:
        why_not: the reason why nothing is captured, or None.
        is_replayed: whether the latest call was replayed.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        device: torch.device,
        parameters: Iterable[Tensor] = (),
        *,
        before_capture: Callable[[], object] = lambda: None,
        warm_up: int = WARM,
        raise_out_of_memory: bool = False,
        pool: Pool | None = None,
    ) -> None:
        self.why_not, self.is_replayed = why_not(device), False
        self._function, self._device, self._parameters = function, device, tuple(parameters)
        self._before_capture, self._raise_out_of_memory = before_capture, raise_out_of_memory
        self._pool = pool
        self._gradients: tuple[Tensor | None, ...] = ()
        self._warm_ups_left = warm_up
        self._inputs: tuple[Tensor, ...] | None = None
        self._replay: Callable[[], None] | None = None
        self._result: Result = None

    def __call__(self, *inputs: Tensor) -> Result:
        """The result for these inputs; the gradients of `parameters` are those of this call."""
        self.is_replayed = False
        if self.why_not:
            return self._function(*inputs)
        if self._inputs is None:
            self._inputs = tuple(given.clone() for given in inputs)
        if not all(map(_is_alike, self._inputs, inputs)):
            return self._function(*inputs)
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        if self._warm_ups_left:
            self._warm_ups_left -= 1
            return self._warm_up(self._inputs)
        if self._replay is None:
            self._replay = self._capture(self._inputs)
        if self._replay is None:
            return self._function(*inputs)
        self._replay()
        self.is_replayed = True
        for parameter, gradient in zip(self._parameters, self._gradients):  # an eager call has set others
            parameter.grad = gradient
        return self._result

    def _capture(self, inputs: tuple[Tensor, ...]) -> Callable[[], None] | None:
        def once() -> None:
            self._result = self._function(*inputs)
            self._gradients = tuple(parameter.grad for parameter in self._parameters)

        self._before_capture()
        try:
            return capture(once, self._pool)
        except RuntimeError as error:  # a device sync in the function, or not enough memory
            if self._raise_out_of_memory and isinstance(error, torch.OutOfMemoryError):
                raise
            self.why_not = f"it can't be recorded: {str(error).splitlines()[0]}"
        return None

    def _warm_up(self, inputs: tuple[Tensor, ...]) -> Result:
        before = _cpu_rng_state()
        with side_stream(self._device):
            result = self._function(*inputs)
        if before != _cpu_rng_state():
            self.why_not = "it draws random numbers on the CPU, which a graph would repeat"
        return result


def capture(function: Callable[[], None], pool: Pool | None = None) -> Callable[[], None]:
    """Capture the kernels that `function` launches, without running them; the returned callable launches them."""
    graph = torch.cuda.CUDAGraph()
    collects = gc.isenabled()
    gc.collect()
    gc.disable()  # freeing an older graph during the capture would invalidate it
    try:
        with torch.cuda.graph(graph, pool=pool):
            function()
    finally:
        if collects:
            gc.enable()
    return graph.replay


def shared_pool(device: torch.device, steps: int) -> Pool | None:
    """A memory pool for this many steps on `device`; None for a single step, and for other devices than GPUs."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" and steps > 1 else None


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Launch kernels inside the `with` block on a side stream, as torch requires of the warm-up of a CUDA graph.

    There is one side stream per device: cuBLAS keeps a workspace for every stream (32 MiB on an H200). No effect on
    other devices than GPUs.
    """
    if device.type != "cuda":
        yield
        return
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


def why_not(device: torch.device) -> str | None:
    """The reason why `device` has no CUDA graphs, or None."""
    return None if device.type == "cuda" else f"the networks are trained on {device}, and graphs need CUDA"


def check_all_labels(scores: Tensor, labels: Tensor) -> None:
    """Check all labels of a training once, since a CUDA graph checks none; `scores` are those of any batch."""
    check_scores_and_labels(scores.new_zeros(()).expand(len(labels), *scores.shape[1:]), labels)


def _is_alike(mine: Tensor, given: Tensor) -> bool:
    return mine.shape == given.shape and mine.dtype == given.dtype and mine.device == given.device


def _cpu_rng_state() -> tuple[object, str, bytes]:
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    return _python_rng_state(), repr(numpy_state), torch.default_generator.get_state().numpy().tobytes()


def _python_rng_state() -> object:
    return random.getstate()


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
