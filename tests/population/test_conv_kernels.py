"""Convolutions without copies of their patches, on a GPU: those of torch, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from population.one_by_one import BN_CNN, CNN, difference, networks, samples
from widemargin import losses, population
from widemargin._cuda import graphs
from widemargin.data import Samples
from widemargin.population.conv_matmul import convolve, forms, halves, pooled, why_not_fused
from widemargin.training import SGD, Nero

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
MARGIN = losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), at=("input", "2"), cross_entropy=0.5)


@pytest.fixture
def exactly() -> Iterator[None]:
    """Products in float32, not in TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@on_gpu
@pytest.mark.usefixtures("exactly")
@pytest.mark.parametrize("shape", [(1, 5, 3, 2), (32, 20, 3, 3), (3, 64, 5, 5), (64, 1, 5, 5), (48, 70, 3, 2)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_cuda_kernels_convolve(shape: tuple[int, int, int, int], with_bias: bool) -> None:
    inputs, outputs, rows, columns = shape
    torch.manual_seed(0)
    shapes = [(3, 7, inputs, 9, 8), (3, outputs, inputs, rows, columns), (3, outputs)][: 2 + with_bias]
    given = [torch.randn(shape, dtype=torch.float64) / (inputs * rows * columns) ** 0.25 for shape in shapes]

    def derivatives(convolved: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
        leaves = [tensor.requires_grad_() for tensor in tensors]
        out = convolved(*leaves)
        slope = torch.cos(torch.arange(out.numel(), device=out.device).view(out.shape) * 0.1)
        first = torch.autograd.grad((out.tanh() * slope).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), leaves)
        return [out, *first, *second]

    def here(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        each = [F.conv2d(x[k], weight[k], None if bias is None else bias[k], 1, (2, 1)) for k in range(3)]
        return torch.stack(each)

    def there(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return convolve(x, weight, bias, stride=(1, 1), padding=(2, 1), fused=True)

    found = derivatives(there, [tensor.float().cuda() for tensor in given])
    for number, (mine, theirs) in enumerate(zip(found, derivatives(here, given), strict=True)):
        gap = float(((mine.cpu().double() - theirs).norm() / theirs.norm()).detach())
        assert gap < 1e-5, (number, gap)


@on_gpu
@pytest.mark.usefixtures("exactly")
@pytest.mark.parametrize("kind", [CNN, BN_CNN])
@pytest.mark.parametrize("optimizer", [SGD(lr=0.05), Nero(lr=0.01)])
@pytest.mark.parametrize("graph", [True, False])
def test_cuda_weights_of_any_form_in_float32(
    kind: str, optimizer: Any, graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)  # beartype, which looks on in tests, draws from it
    given, data = [network.float() for network in networks(kind)], samples()
    data = Samples(data.x.float(), data.y)
    setting: dict[str, Any] = {"loss": MARGIN, "optimizer": optimizer, "steps": 10, "batch_size": 8, "device": "cuda"}
    fused = population.fit(given, data, chunk=3, convolutions="fused", cuda_graph=graph, **setting)
    matmul = population.fit(given, data, chunk=3, convolutions="matmul", cuda_graph=False, **setting)
    for one, other, before in zip(fused.networks, matmul.networks, given):
        assert difference(one, other) < 2e-5
        assert difference(one, before) > 1e-3


def test_where_they_are_not_for() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    network = networks(CNN, 1)[0]
    assert forms(network, cpu) == ("grouped", "matmul")
    assert forms(network, gpu) == ("grouped", "matmul")  # float64
    assert forms(network.float(), gpu) == ("grouped", "matmul", *(() if why_not_fused(gpu) else ("fused",)))
    assert "need CUDA" in str(why_not_fused(cpu))
    with pytest.raises(ValueError, match="convolutions is 'fused', but the networks are trained on cpu"):
        population.fit(
            networks(CNN), samples(), loss=MARGIN, optimizer=SGD(lr=0.1), steps=2, chunk=2, convolutions="fused"
        )


@on_gpu
@pytest.mark.parametrize("size", [(6, 8), (7, 5), (2, 2)])
def test_cuda_pooling(size: tuple[int, int]) -> None:
    """Many places are 0 after a ReLU: of those that tie, the first one has the gradient, as in torch."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size, 5, device="cuda").relu().movedim(4, 2).requires_grad_()

    def derivatives(out: Tensor) -> list[Tensor]:
        (first,) = torch.autograd.grad(out.pow(3).sum(), x, create_graph=True)
        slope = torch.arange(first.numel(), device="cuda").view(first.shape)
        return [out, first, *torch.autograd.grad((first.square() * slope).sum(), x)]

    theirs = derivatives(F.max_pool2d(x.flatten(0, 1), 2).unflatten(0, (2, 3)))
    for mine, other in zip(derivatives(pooled(x)), theirs, strict=True):
        assert torch.equal(mine, other)


def test_which_pools_halve() -> None:
    assert halves(nn.MaxPool2d(2))
    assert halves(nn.MaxPool2d((2, 2), stride=(2, 2)))
    for other in (nn.MaxPool2d(3, 2), nn.MaxPool2d(2, 1), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, ceil_mode=True)):
        assert not halves(other)
