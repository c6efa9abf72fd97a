"""Slow, obvious versions of what the package computes: loops over samples, classes and entries, explicit matrices.

They share no code with the package. One section a room; each function is named after the one it checks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]

# ---------------------------------------------------------------------------------------------------------------- norms


def lp_of(entries: Sequence[float], p: float) -> float:
    """(Σ |v|^p)^(1/p) of one list of numbers."""
    if p == math.inf:
        return max(abs(v) for v in entries)
    return math.fsum(abs(v) ** p for v in entries) ** (1 / p)


def lp(x: Tensor, p: float) -> list[float]:
    return [lp_of(sample.flatten().tolist(), p) for sample in x.double()]


def dual(p: float) -> float:
    """The q with 1/p + 1/q = 1, from the harmonic form."""
    inverse = 1 - (0.0 if p == math.inf else 1 / p)
    return math.inf if inverse == 0 else 1 / inverse


def frobenius(weight: Tensor) -> float:
    return math.sqrt(math.fsum(v * v for v in weight.double().flatten().tolist()))


def two_one(weight: Tensor) -> float:
    """Σ over the rows of the l_2 norm of the row."""
    return math.fsum(math.sqrt(math.fsum(v * v for v in row.flatten().tolist())) for row in weight.double())


def spectral(matrix: Array) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


def matrix_of_convolution(
    weight: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> Array:
    """The matrix, outputs × inputs, of a zero-padded convolution on feature maps of `size`, entry by entry."""
    kernel = weight.double().numpy()
    channels_out, channels_in = kernel.shape[0], kernel.shape[1] * groups
    lengths = [
        (n + 2 * pad - d * (k - 1) - 1) // s + 1
        for n, pad, d, k, s in zip(size, padding, dilation, kernel.shape[2:], stride)
    ]
    matrix = np.zeros((channels_out, *lengths, channels_in, *size))
    for o, c in itertools.product(range(channels_out), range(kernel.shape[1])):
        source = (o // (channels_out // groups)) * kernel.shape[1] + c
        for where in itertools.product(*map(range, lengths)):
            for tap in itertools.product(*map(range, kernel.shape[2:])):
                pixel = tuple(
                    w * s - pad + t * d for w, s, pad, t, d in zip(where, stride, padding, tap, dilation, strict=True)
                )
                if all(0 <= i < n for i, n in zip(pixel, size)):
                    matrix[(o, *where, source, *pixel)] += kernel[(o, c, *tap)]
    return matrix.reshape(channels_out * math.prod(lengths), channels_in * math.prod(size))


def matrix_of_layer(layer: nn.Module, input_shape: Sequence[int]) -> Array:
    """The matrix of a Linear or Conv layer on inputs of `input_shape`, its bias left out."""
    if isinstance(layer, nn.Linear):
        return np.asarray(layer.weight.detach().double().numpy())
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    assert not isinstance(layer.padding, str)
    return matrix_of_convolution(
        layer.weight.detach(),
        input_shape[1:],
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
    )


# ------------------------------------------------------------------------------------------------------ margins: output


def rival_classes(scores: Sequence[float], label: int) -> list[int]:
    """The other classes, the strongest first."""
    return sorted((i for i in range(len(scores)) if i != label), key=lambda i: -scores[i])


def softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    powers = [math.exp(s - top) for s in scores]
    return [power / math.fsum(powers) for power in powers]


def differences(
    scores: Tensor, labels: Tensor, *, classes: int | str = 1, read_as: str = "logits"
) -> list[list[float]]:
    rows: list[list[float]] = []
    for sample, label in zip(scores.double(), labels.tolist(), strict=True):
        if sample.numel() == 1:
            f = sample.item()
            if read_as == "softmax":  # the scores f and 0 of two classes
                first, second = softmax([f, 0.0])
                f = first - second
            rows.append([f * label])
            continue
        logits = sample.tolist()
        f_all = softmax(logits) if read_as == "softmax" else logits
        rivals = rival_classes(logits, int(label))
        rows.append([f_all[int(label)] - f_all[i] for i in (rivals if classes == "all" else rivals[: int(classes)])])
    return rows


def output(scores: Tensor, labels: Tensor) -> list[float]:
    return [row[0] for row in differences(scores, labels)]


# ---------------------------------------------------------------------------------------------------- margins: distance


def gradients_of_sample(network: nn.Module, x: Tensor, place: str, read_as: str) -> tuple[list[float], Array]:
    """f_i of one input alone, and the matrix of ∂f_i/∂h at a place h: the captured activation, one row a class."""
    caught: list[Tensor] = []

    def catch(_: nn.Module, __: Any, result: Any) -> Any:
        caught.append(result[0] if isinstance(result, tuple) else result)
        # What follows gets a copy, since it may be an in-place ReLU.
        return (caught[0].clone(), *result[1:]) if isinstance(result, tuple) else caught[0].clone()

    if x.is_floating_point():
        x = x.clone().requires_grad_()
    if place == "input":
        caught.append(x)
        answer = network(x[None])
    else:
        handle = network.get_submodule(place).register_forward_hook(catch)
        try:
            answer = network(x[None])
        finally:
            handle.remove()
    scores = (answer if isinstance(answer, Tensor) else answer.logits).reshape(-1)
    if len(scores) == 1:  # f for the label 1 and −f for the label −1: half a difference each
        scores = torch.tanh(scores / 2) if read_as == "softmax" else scores
        scores = torch.cat([-scores / 2, scores / 2])
    elif read_as == "softmax":
        scores = torch.softmax(scores, dim=0)
    rows = []
    for score in scores:
        (gradient,) = torch.autograd.grad(score, caught[0], retain_graph=True, materialize_grads=True)
        rows.append(gradient.double().flatten().numpy())
    return scores.double().tolist(), np.stack(rows)


def distances(
    network: nn.Module, x: Tensor, labels: Tensor, *, place: str, p: float, read_as: str = "logits"
) -> list[list[float]]:
    """(f_y − f_i)/‖∇f_y − ∇f_i‖_q: one list a sample, one entry an other class, the strongest class first."""
    q = dual(p)
    result = []
    for sample, label in zip(x, labels.tolist(), strict=True):
        f, jacobian = gradients_of_sample(network, sample, place, read_as)
        y = (1 if label > 0 else 0) if labels.is_floating_point() else int(label)
        row = []
        for i in rival_classes(f, y):
            slope = lp_of((jacobian[y] - jacobian[i]).tolist(), q)
            row.append((f[y] - f[i]) / slope if slope > 0 else math.nan)
        result.append(row)
    return result


# -------------------------------------------------------------------------------------------------- margins: normalized


def weight_layers(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            yield name, module


def operator_norms(network: nn.Module, x: Tensor) -> dict[str, float]:
    """The SVD of the explicit matrix of every layer, on the shape that reaches it when the network runs."""
    shapes: dict[str, Sequence[int]] = {}
    handles = []
    for name, layer in weight_layers(network):

        def remember(_: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
            shapes[name] = args[0].shape[1:]

        handles.append(layer.register_forward_pre_hook(remember))
    network(x[:1])
    for handle in handles:
        handle.remove()
    return {name: spectral(matrix_of_layer(layer, shapes[name])) for name, layer in weight_layers(network)}


def normalized_frobenius(network: nn.Module, x: Tensor, labels: Tensor) -> list[float]:
    """γ · Π √d_l/‖W_l‖_F · √d_0/‖x‖, sample by sample."""
    margins = output(network(x).detach(), labels)
    result = []
    for sample, margin in zip(x, margins, strict=True):
        for _, layer in weight_layers(network):
            assert isinstance(layer.weight, Tensor)
            margin *= math.sqrt(layer.weight.shape[0]) / frobenius(layer.weight.detach())
        result.append(margin * math.sqrt(sample.numel()) / lp_of(sample.flatten().tolist(), 2))
    return result


def spectral_complexity(network: nn.Module, x: Tensor, reference: nn.Module | None = None) -> float:
    sizes = operator_norms(network, x)
    centres = {} if reference is None else dict(weight_layers(reference))
    product, total = 1.0, 0.0
    for name, layer in weight_layers(network):
        assert isinstance(layer.weight, Tensor)
        weight = layer.weight.detach().double()
        if reference is not None:
            centre = centres[name].weight
            assert isinstance(centre, Tensor)
            weight = weight - centre.detach().double()
        product *= sizes[name]
        total += two_one(weight) ** (2 / 3) / sizes[name] ** (2 / 3)
    return product * total ** (3 / 2)


def normalized_spectral(
    network: nn.Module, x: Tensor, labels: Tensor, *, reference: nn.Module | None = None, inputs: str = "each"
) -> list[float]:
    """γ / R_w · √d_0/‖x‖, or γ / R_w / (‖X‖_F/n)."""
    complexity = spectral_complexity(network, x, reference)
    result = []
    for sample, margin in zip(x, output(network(x).detach(), labels), strict=True):
        if inputs == "joint":
            factor = 1 / (frobenius(x) / len(x))
        else:
            factor = math.sqrt(sample.numel()) / lp_of(sample.flatten().tolist(), 2)
        result.append(margin / complexity * factor)
    return result


# ------------------------------------------------------------------------------------------------ margins: distribution


def summary(margins: Sequence[float], quantiles: Sequence[float]) -> dict[str, float]:
    """Every statistic of a distribution, by name, NaN entries left out and counted."""
    values = [m for m in margins if not math.isnan(m)]
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    return {
        "count": len(margins),
        "invalid": len(margins) - len(values),
        "mean": mean,
        "std": std,
        "mean/std": mean / std if std > 0 else math.nan,
        "share negative": sum(v < 0 for v in values) / len(values),
        "minimum": min(values),
        **{f"quantile {q:g}": float(np.quantile(values, q)) for q in quantiles},
    }


def density(margins: Sequence[float], grid: Sequence[float], bandwidth: float) -> list[float]:
    """Mean of Gaussians around every margin."""
    height = 1 / (bandwidth * math.sqrt(2 * math.pi))
    return [
        math.fsum(height * math.exp(-(((point - m) / bandwidth) ** 2) / 2) for m in margins) / len(margins)
        for point in grid
    ]
