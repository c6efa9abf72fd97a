"""The number of networks to train at once, chosen by timing.

More at once reduce the overhead per operation; too many exceed the caches. The best number depends on networks, batch,
loss and machine, so a few steps are timed with 1, 4, 16, 64, … networks, and the choice is remembered by the process.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from widemargin._cuda.graphs import WARM
from widemargin.modules import evaluating
from widemargin.population.conv_matmul import Convolutions
from widemargin.population.conv_matmul import forms as known_forms
from widemargin.population.run import PopulationConfig, PopulationRun

_PART_FOR_MEASURING = 0.05
_TIMED = 3  # timed steps, after one that is not timed; more of them where steps are short
_remembered: dict[tuple[object, ...], Chunk] = {}


class Chunk(NamedTuple):
    """A number of networks at once, and the form of their convolutions."""

    size: int
    convolutions: Convolutions


def choose(plan: PopulationConfig, *, size: int | None, convolutions: Convolutions | None) -> Chunk:
    """The fastest chunk for `plan`; a given `size` or `convolutions` is kept."""
    forms = known_forms(plan.networks[0], plan.device) if convolutions is None else (convolutions,)
    if size is not None and (len(forms) == 1 or size == 1):
        return Chunk(min(size, len(plan)), forms[0])
    key = _key(plan, size, forms)
    if key not in _remembered:
        most = min(len(plan), most_in_memory(plan) if size is None else size)
        sizes = [most] if size is not None else [*(4**k for k in range(most.bit_length()) if 4**k < most), most]
        measured = _measured(plan, sizes, forms)
        if measured is None:  # the training is too short for timing
            on_gpu = plan.device.type == "cuda"
            return Chunk(most if size is not None or on_gpu else min(most, 16), forms[-1] if on_gpu else forms[0])
        _remembered[key] = measured
    return _remembered[key]


def most_in_memory(plan: PopulationConfig) -> int:
    """The number of networks that fit in memory: an estimate, at least 1.

    A network needs memory for its weights, their gradients, the state of the optimizer and temporary tensors; and for
    its activations, their gradients, and as much again.
    """
    network = plan.networks[0]
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    batch = plan.data[0].x[: plan.batch_size or len(plan.data[0])]
    seen: list[int] = [batch.numel() * batch.element_size()]

    def note(_: nn.Module, __: object, output: object) -> None:
        if isinstance(output, Tensor):
            seen.append(output.numel() * output.element_size() // len(one) * len(batch))

    one = batch[:1].to(next(network.parameters()).device)
    handles = [m.register_forward_hook(note) for m in network.modules() if not any(m.children())]
    try:
        with evaluating(network), torch.no_grad():
            network(one)
    finally:
        for handle in handles:
            handle.remove()
    return max(1, int(0.8 * available(plan.device) / (5 * weights + 3 * sum(seen))))


def available(device: torch.device) -> float:
    """Bytes of free memory on `device`; 8 GiB where it is unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return float(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        names = getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 if "SC_PHYS_PAGES" in names else 2.0**33


def seconds(plan: PopulationConfig, size: int, form: Convolutions) -> float:
    """The time of a step of one network, where `size` of them train at once: of copies, for a few steps."""
    times: list[float] = []
    with closing(PopulationRun(dataclasses.replace(plan, until=None), range(size), form)) as run:
        while run.no_cuda_graph is None and not run.was_recorded and run.step < 4 * WARM:  # steps before the recording
            run.advance()
        while len(times) < 1 + _TIMED or (sum(times[1:]) < 0.1 and len(times) < 50):
            start = time.perf_counter()
            run.advance()
            if plan.device.type == "cuda":
                torch.cuda.synchronize(plan.device)
            times.append(time.perf_counter() - start)
    # The mean, since on a busy machine the shortest of many steps is an outlier. The first step is always slow.
    return sum(times[1:]) / (len(times) - 1) / size


def _measured(plan: PopulationConfig, sizes: Sequence[int], forms: tuple[Convolutions, ...]) -> Chunk | None:
    """The fastest of the sizes and forms, or None where the training is too short to time any."""
    allowed = _PART_FOR_MEASURING * len(plan) * plan.steps / (1 + _TIMED)  # network-steps, as slow as one by one
    best, best_time = None, math.inf
    for size in sizes:
        tried = forms if size > 1 else forms[:1]  # one network has one form
        allowed -= size * len(tried)
        if allowed < 0:
            break
        times: dict[Convolutions, float] = {}
        for form in tried:
            with suppress(torch.OutOfMemoryError):
                times[form] = seconds(plan, size, form)
        fastest = min(times, key=times.__getitem__, default=None)
        if fastest is None or times[fastest] > 1.5 * best_time:  # less may be noise
            break
        if times[fastest] < 0.97 * best_time:
            best, best_time = Chunk(size, fastest), times[fastest]
    return best


def _key(plan: PopulationConfig, size: int | None, forms: tuple[Convolutions, ...]) -> tuple[object, ...]:
    batch = min(plan.batch_size or len(plan.data[0]), len(plan.data[0]))
    x, kinds = plan.data[0].x, (repr(plan.losses[0])[:1000], repr(plan.regularizers), type(plan.optimizers[0]))
    where = (x.dtype, plan.device, torch.get_num_threads())
    return (str(plan.networks[0]), batch, x.shape[1:], *where, *kinds, len(plan), size, forms)
