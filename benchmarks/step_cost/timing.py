"""Seconds of calls that take turns, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

Times = dict[str, list[float]]


def in_turns(calls: Mapping[str, Callable[[], object]], device: str, rounds: int) -> Times:
    """Seconds of each call in each round; the first round warms up and does not count."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times: Times = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if number:
                times[name].append(clock() - start)
    return times


def ratios(times: Times, base: str) -> dict[str, Any]:
    """Median seconds, and the median over rounds of the ratio to `base` in the same round."""
    return {
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "ratio": {
            name: statistics.median(value / unit for value, unit in zip(values, times[base], strict=True))
            for name, values in times.items()
        },
    }


def finish(device: str) -> None:
    """Wait until the device has finished all queued work."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def peak_bytes(step: Callable[[], object], device: str) -> int:
    """Peak bytes allocated on the GPU during a step, weights and batch included."""
    finish(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    finish(device)
    return torch.cuda.max_memory_allocated(device)
