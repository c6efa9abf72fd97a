"""The slow, obvious version of `WideMargin`: a loop over samples; batch statistics and masks by plain operations."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oracles import dual, lp_of

Base = Callable[[Tensor, float], Tensor]


class Pass:
    """The kind of a forward pass: of the "batch", of a "part" of it, or of sample `row` of the latter, "one"."""

    kind, row, is_constant = "batch", 0, False


class PlainBatchNorm(nn.Module):
    """(x − m)/√(v + ε)·w + b with the mean m and variance v of the whole batch, in every pass."""

    def __init__(self, of: _BatchNorm, now: Pass) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.now = of.weight, of.bias, of.eps, now

    def forward(self, x: Tensor) -> Tensor:
        dims = [d for d in range(x.ndim) if d != 1]
        if self.now.kind == "batch":
            self.mean = x.mean(dims, keepdim=True)
            self.variance = ((x - self.mean) ** 2).mean(dims, keepdim=True)
        mean, variance = self.mean, self.variance
        if self.now.is_constant:
            mean, variance = mean.detach(), variance.detach()
        out = (x - mean) / (variance + self.eps) ** 0.5
        shape = [1, -1, *[1] * (x.ndim - 2)]
        return out if self.weight is None else out * self.weight.view(shape) + self.bias.view(shape)


class PlainDropout(nn.Module):
    """x·m with a mask m that is drawn for a batch or a part, and is the sample's own row of it in a pass of one."""

    def __init__(self, of: nn.Dropout, now: Pass) -> None:
        super().__init__()
        self.p, self.now = of.p, now

    def forward(self, x: Tensor) -> Tensor:
        if self.now.kind != "one":
            self.mask = nn.functional.dropout(torch.ones_like(x), self.p)
            return x * self.mask
        return x * self.mask[self.now.row : self.now.row + 1]


def plain(module: nn.Module, now: Pass) -> nn.Module:
    """A network with the same parameters and the layers above."""
    if isinstance(module, _BatchNorm) and module.training:
        return PlainBatchNorm(module, now)
    if isinstance(module, nn.Dropout) and module.training:
        return PlainDropout(module, now)
    result = copy.copy(module)
    result._modules = {name: None if m is None else plain(m, now) for name, m in module._modules.items()}
    return result


def run(network: nn.Module, x: Tensor, steps: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The scores with `steps` added at places, and the activations there before the addition."""
    seen, handles = {}, []
    for name, step in steps.items():
        if name == "input":
            seen[name] = x.detach()
            continue

        def add(_: nn.Module, __: object, out: Tensor, name: str = name, step: Tensor = step) -> Tensor:
            seen[name] = out.detach()
            return out + step

        handles.append(network.get_submodule(name).register_forward_hook(add))
    scores: Tensor = network(x + steps["input"] if "input" in steps else x)
    for handle in handles:
        handle.remove()
    return scores, seen


def difference(scores: Tensor, label: float, other: int | None) -> Tensor:
    """f_y − f_other of one sample, or f·y of a binary network."""
    return scores.reshape(()) * label if other is None else scores[int(label)] - scores[other]


def cross_entropy(scores: Tensor, label: float) -> Tensor:
    if scores.numel() == 1:
        return torch.log(1 + torch.exp(-scores.reshape(()) * label))
    return torch.log(torch.exp(scores - scores[int(label)]).sum())


def direction(gradient: Tensor, p: float) -> Tensor:
    """The u with ‖u‖_p = 1 and the largest ⟨u, gradient⟩."""
    entries = gradient.flatten().tolist()
    size = lp_of(entries, dual(p))
    if size == 0:
        u = [0.0] * len(entries)
    elif p == 1:
        largest = max(range(len(entries)), key=lambda j: abs(entries[j]))
        u = [math.copysign(1.0, g) if j == largest else 0.0 for j, g in enumerate(entries)]
    elif p == math.inf:
        u = [math.copysign(1.0, g) if g else 0.0 for g in entries]
    else:
        u = [math.copysign((abs(g) / size) ** (dual(p) - 1), g) for g in entries]
    return gradient.new_tensor(u).view(gradient.shape)


def coordinate_scales(points: Tensor) -> Tensor:
    """Powers of the relative deviations of features, of channels, or of both dimensions of a sequence of vectors."""
    center = sum(points) / len(points)
    variance = torch.as_tensor(sum((x - center) ** 2 for x in points) / len(points))
    mean, spreads = float(variance.mean()), torch.ones_like(variance)
    if mean == 0:
        return spreads
    parts = []
    for index in itertools.product(*map(range, variance.shape)):
        if variance.ndim == 1:
            square = float(variance[index]) / mean
        elif variance.ndim == 2:
            square = float(variance[index[0]].mean()) / mean * float(variance[:, index[1]].mean()) / mean
        else:
            square = float(variance[index[0]].mean()) / mean if variance.ndim else 1.0
        spreads[index] = math.sqrt(square)
        parts += [math.log(spreads[index])] if square else []
    power = min(1.0, max(0.0, math.log2(2 / 3) - math.fsum(parts) / len(parts) / math.log(2)))
    return torch.where(spreads > 0, spreads**power, 1 - power)


def in_units_of(scales: Tensor, points: Tensor) -> Tensor:
    """(x − m)/r, and 0 where r is 0."""
    centred = points - points.mean(dim=0)
    return torch.stack([torch.where(scales == 0, 0.0, row / torch.where(scales == 0, 1.0, scales)) for row in centred])


def step_length(points: Tensor, labels: Sequence[float], p: float) -> float:
    """min(√(mean variance of a coordinate)·D^(1/p − 1/2), 1/24 of the median distance to another label)."""
    rows = [point.flatten().tolist() for point in points]
    size = len(rows[0])
    if len(rows) == 1:
        mean = math.fsum(rows[0]) / size
        variance = math.fsum((v - mean) ** 2 for v in rows[0]) / size
    else:
        means = [math.fsum(column) / len(rows) for column in zip(*rows)]
        variance = math.fsum((v - m) ** 2 for row in rows for v, m in zip(row, means)) / (size * len(rows))
    spread = math.sqrt(variance) * size ** ((0 if p == math.inf else 1 / p) - 0.5)
    nearest = []
    for row, label in zip(rows, labels):
        others = [r for r, other in zip(rows, labels) if other != label]
        nearest += [min(lp_of([a - b for a, b in zip(row, r)], p) for r in others)] if others else []
    return min(spread, sorted(nearest)[(len(nearest) - 1) // 2] / 24) if nearest else spread


def separation(points: Tensor, labels: Sequence[float], p: float) -> float:
    """max(κ³, min(1, (S/10)²)): neighbours with the same label, and the upper end of the variance between classes."""
    rows, groups = [point.flatten().tolist() for point in points], sorted(set(labels))
    if len(groups) == 1:
        return 0.0
    if len(groups) == len(rows):
        return 1.0
    mean = [math.fsum(column) / len(rows) for column in zip(*rows)]
    between, residuals = 0.0, []
    for group in groups:
        members = [row for row, label in zip(rows, labels) if label == group]
        center = [math.fsum(column) / len(members) for column in zip(*members)]
        between += len(members) * math.fsum((a - b) ** 2 for a, b in zip(center, mean))
        residuals += [[a - b for a, b in zip(row, center)] for row in members]
    within = math.fsum(r**2 for row in residuals for r in row)
    more, free = len(groups) - 1, len(rows) - len(groups)
    products = math.fsum(math.fsum(a * b for a, b in zip(one, two)) ** 2 for one in residuals for two in residuals)
    squares = max(0.0, (products - within**2 / free) / free**2)  # Σ λ² over the eigenvalues λ of the covariance
    upper = between - more * within / free + 2 * math.sqrt(2 * more * (1 + more / free) * squares)
    s = upper / ((between + within) / len(rows[0]))
    agreeing, expected = 0, 0.0
    for i, (row, label) in enumerate(zip(rows, labels)):
        others = [(lp_of([a - b for a, b in zip(row, r)], p), labels[j]) for j, r in enumerate(rows) if j != i]
        agreeing += min(others)[1] == label
        expected += sum(other == label for _, other in others) / len(others)
    kappa = (agreeing - expected) / (len(rows) - expected)
    return max(max(kappa, 0.0) ** 3, min(1.0, max(s, 0.0) / 10) ** 2)


def balance(labels: Sequence[float], label: float, other: int | None) -> float:
    """min(1, (√n_i + √½)²/n_y), with the counts of a label and of the other class; −label of a binary network."""
    rivals = labels.count(-label if other is None else other)
    return min(1.0, (math.sqrt(rivals) + math.sqrt(0.5)) ** 2 / labels.count(label))


def wide_margin(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    strength: float = 1.0,
    at: Sequence[str] = ("input",),
    p: float = 2.0,
    share: float = 1.0,
    base: Base = cross_entropy,
) -> Tensor:
    """base + strength·b·(a·c)²·penalty(d(x) − d(x − σu)) of every sample, with a graph to the weights of `network`."""
    now, labels = Pass(), y.tolist()
    model = plain(network, now)
    scores, seen = run(model, x, dict.fromkeys(at, torch.zeros((), dtype=torch.float64)))
    others: list[int | None] = []
    for f, label in zip(scores, labels):
        rivals = [i for i in range(f.numel()) if i != label] if f.numel() > 1 else []
        others.append(max(rivals, key=lambda i: float(f[i].detach())) if rivals else None)
    own = [difference(f, label, other) for f, label, other in zip(scores, labels, others)]
    a = sum(float(d.detach()) > 0 for d in own) / len(own)
    r = {name: coordinate_scales(seen[name]) for name in at}
    sigma = {name: step_length(in_units_of(r[name], seen[name]), labels, p) for name in at}
    c = {name: separation(in_units_of(r[name], seen[name]), labels, p) for name in at}
    count = max(1, round(share * len(y)))
    rows = [k * len(y) // count for k in range(count)]
    is_random = any(isinstance(module, PlainDropout) for module in model.modules())
    if share < 1 and is_random:
        now.kind = "part"
        part = model(x[rows])
        own = [difference(part[rows.index(i)], labels[i], others[i]) if i in rows else d for i, d in enumerate(own)]
    values = [base(f, label) for f, label in zip(scores, labels)]
    now.kind = "one"
    for now.row, i in enumerate(rows):
        terms = []
        for name in at:
            zero = torch.zeros_like(seen[name][i : i + 1]).requires_grad_()
            now.is_constant = True
            (g,) = torch.autograd.grad(
                difference(run(model, x[i : i + 1], {name: zero})[0][0], labels[i], others[i]), zero
            )
            now.is_constant = False
            moved, _ = run(model, x[i : i + 1], {name: -sigma[name] * r[name] * direction(r[name] * g, p)})
            change = own[i] - difference(moved[0], labels[i], others[i])
            terms.append(c[name] ** 2 * (change**2 if abs(float(change.detach())) <= 10 else 20 * abs(change) - 100))
        values[i] = values[i] + strength * balance(labels, labels[i], others[i]) * a**2 * sum(terms) / len(terms) * (
            len(y) / count
        )
    return torch.stack(values)
