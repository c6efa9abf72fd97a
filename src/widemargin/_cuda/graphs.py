"""CUDA graphs: capture of a function, and training steps that are captured after warm-up and then replayed.

    step = CapturedStep(forward_and_backward, model.parameters())  # sets the gradients to None, then computes them
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

WARM = 3
"""Steps that run before the capture, in which libraries choose their algorithms and workspaces."""

Pool: TypeAlias = torch.cuda._POOL_HANDLE | None
"""Memory pool that several graphs share."""

Result: TypeAlias = Tensor | tuple[Tensor, ...] | None


class CapturedStep:
    """`step(*inputs)` returns `function(*inputs)`: eager at first, then replayed from a CUDA graph.

    The first `WARM` calls and every call with inputs of other shapes than the first call's run eagerly. The result is
    the memory that the graph writes to: read or copy it before the next call. `function` must not synchronise with the
    device (`.item()`), and values of scores and labels are not validated in a replay: `before_capture` is called once
    before the capture and may do that.

    Attributes:
        why_not: the reason why nothing is captured, or None.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        parameters: Iterable[nn.Parameter] = (),
        *,
        before_capture: Callable[[], object] = lambda: None,
    ) -> None:
        self.why_not: str | None = None
        self._function, self._parameters, self._before_capture = function, tuple(parameters), before_capture
        self._gradients: tuple[Tensor | None, ...] = ()
        self._calls = 0
        self._inputs: tuple[Tensor, ...] = ()
        self._replay: Callable[[], None] | None = None
        self._result: Result = None

    def __call__(self, *inputs: Tensor) -> Result:
        """The result for these inputs; the gradients of `parameters` are those of this call."""
        if not self._inputs:
            self.why_not = why_not(inputs[0].device)
            self._inputs = inputs if self.why_not else tuple(given.clone() for given in inputs)
        if self.why_not or not all(map(_is_alike, self._inputs, inputs)):
            return self._function(*inputs)
        copy_into(self._inputs, inputs)
        if self._calls < WARM:
            self._calls += 1
            return self._warm_up()
        if self._replay is None and not self._capture():
            return self._function(*inputs)
        assert self._replay is not None
        self._replay()
        for parameter, gradient in zip(self._parameters, self._gradients):  # an eager call has set others
            parameter.grad = gradient
        return self._result

    @property
    def is_recorded(self) -> bool:
        """Whether the graph has been captured."""
        return self._replay is not None

    def _capture(self) -> bool:
        def once() -> None:
            self._result = self._function(*self._inputs)
            self._gradients = tuple(parameter.grad for parameter in self._parameters)

        self._before_capture()
        try:
            self._replay = capture(once, memory(self._inputs[0].device))
        except RuntimeError as error:  # a device sync in the function, or not enough memory
            self.why_not = f"it can't be recorded: {str(error).splitlines()[0]}"
        return self._replay is not None

    def _warm_up(self) -> Result:
        before = _cpu_rng_state()
        with side_stream(self._inputs[0].device):
            result = self._function(*self._inputs)
        if before != _cpu_rng_state():
            self.why_not = "it draws random numbers on the CPU, which a graph would repeat"
        return result


def capture(function: Callable[[], None], pool: Pool) -> Callable[[], None]:
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


def memory(device: torch.device) -> Pool:
    """A memory pool that several graphs can share; None on other devices than GPUs."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


def copy_into(inputs: Sequence[Tensor | None], values: Sequence[Tensor | None]) -> None:
    """Write `values` to the tensors that a graph reads."""
    for mine, given in zip(inputs, values, strict=True):
        if mine is not None and given is not None:
            mine.copy_(given)


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
