"""The cost of a training step of a margin loss, in steps of cross-entropy (elsayed, §4.1).

Settings:

    shape, classes   of random images and labels
    network          {"name": …} and the settings of `models.build`
    loss             a margin loss, see `registry.loss`
    batch            images in a step
    precision        "float32", or "bfloat16": autocast
    warm, repeats    steps before and while times are taken

Row: `ratio`, the median over `repeats` pairs of steps, one of each loss in turn, of their times; `margin ms` and
`cross-entropy ms`, the medians; `way`, how the gradients of the margin loss were computed (`training.margin_backward`).
A step is a forward pass, the gradients, and a step of SGD with momentum, for both losses.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from widemargin import losses, registry
from widemargin.checks import check_choice
from widemargin.studies import networks
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import margin_backward

VERSION = 1
_KEYS = ("shape", "classes", "network", "loss", "batch", "precision", "warm", "repeats")


def run(trial: Trial, context: TrialContext) -> Row:
    """Both losses in turn, on one network."""
    given, device = trial.settings, torch.device(context.device)
    check_keys(given, _KEYS, exactly=True)
    network, x, y = prepare(given, trial.seed, device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    margin, entropy = registry.loss(given["loss"]), losses.CrossEntropy()
    assert isinstance(margin, losses.MarginLoss)
    paths: list[str] = []
    steps: dict[str, Callable[[], object]] = {
        "margin": lambda: paths.append(repr(margin_backward(network, margin, x, y))),
        "cross-entropy": lambda: entropy(network, x, y).mean().backward(),
    }
    with torch.autocast(device.type, torch.bfloat16, enabled=given["precision"] == "bfloat16"):
        rounds = range(given["warm"] + given["repeats"])
        pairs = [[_timed(step, optimizer, device) for step in steps.values()] for _ in rounds][given["warm"] :]
    medians = [statistics.median(times) for times in zip(*pairs)]
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        **{f"{name} ms": 1000 * seconds for name, seconds in zip(steps, medians)},
        "way": paths[-1],
    }


def prepare(given: Settings, seed: int, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """The network in training mode, random images, and random labels."""
    check_choice("precision", given["precision"], ("float32", "bfloat16"))
    network = networks.build(given["network"], seed, str(device)).train()
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand((given["batch"], *given["shape"]), generator=draw).to(device)
    y = torch.randint(given["classes"], (given["batch"],), generator=draw).to(device)
    return network, x, y


def _timed(backward: Callable[[], object], optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    optimizer.zero_grad()
    backward()
    optimizer.step()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Wait for a GPU; a CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
