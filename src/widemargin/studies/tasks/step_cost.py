"""The cost of a training step of any loss, in steps of cross-entropy: time and peak memory.

Settings:

    shape, classes   of random images and labels
    network          {"name": …} and the settings of `models.build`
    loss             see `registry.loss`
    regularizers     a list or a mapping, see `registry.regularizers`
    batch            images in a step
    precision        "float32", or "bfloat16": autocast
    cuda_graph       whether both steps are replayed from CUDA graphs; without a GPU they are not
    warm, repeats    pairs of steps before and while times are taken

Row: `ratio`, the median over `repeats` pairs of steps, one of each loss in turn, of their times; `ms` and
`cross-entropy ms`, the medians; on a GPU `memory ratio`, of the peaks of allocated memory, and both in MiB; `CUDA
graph`. A step is a forward pass and the gradients of the weights; the optimizer is left out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from widemargin import losses, registry
from widemargin._cuda.graphs import CapturedStep
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys
from widemargin.studies.tasks.augmented import Regularized
from widemargin.studies.tasks.step_time import prepare, wait
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
_KEYS = ("shape", "classes", "network", "loss", "regularizers", "batch", "precision", "cuda_graph", "warm", "repeats")
Step = Callable[[Tensor, Tensor], object]


def run(trial: Trial, context: TrialContext) -> Row:
    """Both losses in turn, on one network and one batch."""
    given, device = trial.settings, torch.device(context.device)
    check_keys(given, _KEYS)
    network, x, y = prepare(given, trial.seed, device)
    passes = {"": _passes(_loss(given), network, given["precision"])}
    passes["cross-entropy "] = _passes(losses.CrossEntropy(), network, given["precision"])
    row: Row = {}
    if device.type == "cuda":  # before anything is captured: the memory of a CUDA graph stays allocated
        peaks = {name: _peak(step, x, y) for name, step in passes.items()}
        row = {f"{name}MiB": peak / 2**20 for name, peak in peaks.items()}
        row["memory ratio"] = peaks[""] / peaks["cross-entropy "]
    steps: dict[str, Step] = dict(passes)
    if given.get("cuda_graph"):
        captured = {name: CapturedStep(step, device, network.parameters()) for name, step in passes.items()}
        steps = dict(captured)
    rounds = range(given["warm"] + given["repeats"])
    pairs = [[_timed(step, x, y) for step in steps.values()] for _ in rounds][given["warm"] :]
    if given.get("cuda_graph"):
        row["CUDA graph"] = all(step.why_not is None for step in captured.values())
    medians = {f"{name}ms": 1000 * statistics.median(times) for name, times in zip(steps, zip(*pairs))}
    return {"ratio": statistics.median(a / b for a, b in pairs), **medians, **row}


def _loss(given: Settings) -> losses.Loss:
    loss = registry.loss(given["loss"])
    penalties = registry.regularizers(given.get("regularizers", ()))
    return Regularized(loss=loss, regularizers=penalties) if penalties else loss


def _passes(loss: losses.Loss, network: nn.Module, precision: str) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        network.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            value = loss(network, x, y).mean()
        value.backward()
        return value.detach()

    return step


def _timed(step: Step, x: Tensor, y: Tensor) -> float:
    wait(x.device)
    start = time.perf_counter()
    step(x, y)
    wait(x.device)
    return time.perf_counter() - start


def _peak(step: Step, x: Tensor, y: Tensor) -> int:
    """Peak bytes of a second step, weights, their gradients and the batch included."""
    step(x, y)
    wait(x.device)
    torch.cuda.reset_peak_memory_stats(x.device)
    step(x, y)
    wait(x.device)
    return torch.cuda.max_memory_allocated(x.device)
