"""Places of networks inside wrappers: DDP, Fabric, DataParallel, torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]

import zoo
from placed import X, Y, distances, small
from widemargin import margins, places
from widemargin.modules import unwrap


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    store = FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_ddp() -> None:
    network = small()
    expected = distances(network, ("input", "2.0", "output"))
    wrapped = nn.parallel.DistributedDataParallel(network)
    with places.watch(wrapped, ("input", "2.0", "output")) as at:
        scores = wrapped(X)
    result = margins.distance(scores, Y, at=at)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    sum(result.values()).sum().backward()  # type: ignore[union-attr]
    assert network[0].weight.grad is not None
    measured = margins.measure(wrapped, (X, Y), at=("input", "2.0"))
    torch.testing.assert_close(measured.margins["2.0"], expected["2.0"].detach(), rtol=0, atol=0)


def test_fabric() -> None:
    fabric = pytest.importorskip("lightning_fabric").Fabric(accelerator="cpu", devices=1)
    network = small()
    expected = distances(network, ("input", "2.0", "output"))
    wrapped = fabric.setup_module(network)
    torch.testing.assert_close(distances(wrapped, ("input", "2.0", "output")), expected, rtol=0, atol=0)
    assert unwrap(wrapped) is network
    measured = margins.measure(wrapped, (X, Y), at=("input", "2.0"))
    torch.testing.assert_close(measured.margins["2.0"], expected["2.0"].detach(), rtol=0, atol=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, DataParallel moves the scores there")
def test_data_parallel() -> None:
    network = small()
    wrapped = nn.DataParallel(network)
    torch.testing.assert_close(distances(wrapped, ("input", "2.0")), distances(network, ("input", "2.0")))


# Dynamo hides this warning of its own by a filter that does not hold where warnings are errors.
dynamo = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",  # torch 2.11 says so of its own code
)


class Backend:
    """Runs the captured graph as it is, and counts how often; AOTAutograd, as every real backend has it, around it."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, example: list[Tensor]) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def compiler(inner: torch.fx.GraphModule, _: list[Tensor]) -> Any:
            from functorch.compile import make_boxed_func  # type: ignore[import-untyped]

            def run(*args: Any) -> Any:
                self.runs += 1
                return inner(*args)

            return make_boxed_func(run)

        return aot_autograd(fw_compiler=compiler)(graph, example)


class Own(nn.Sequential):
    """Has a `forward` of its own: torch.compile passes over that of `nn.Sequential` when it compiles in place."""

    def __init__(self) -> None:
        super().__init__(*small())

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


@dynamo
@pytest.mark.parametrize("way", ["torch.compile", "in place"])
def test_compile(way: str) -> None:
    torch.compiler.reset()
    network, backend = Own(), Backend()
    expected = distances(Own(), ("input", "2.0", "output"))
    compiled: Any = network
    if way == "in place":
        network.compile(backend=backend)
    else:
        compiled = torch.compile(network, backend=backend)
    compiled(X)  # without any place first: a hook that comes later must count
    runs = backend.runs
    assert runs == 1
    result = distances(compiled)
    # The input as a place keeps a network compiled, unless its hooks would be compiled with it.
    assert backend.runs == (runs if way == "in place" else runs + 2)
    torch.testing.assert_close(result["input"], expected["input"], rtol=1e-12, atol=0)
    runs = backend.runs
    torch.testing.assert_close(distances(compiled, ("input", "2.0", "output")), expected, rtol=1e-12, atol=0)
    assert backend.runs == runs  # a hidden place takes it as it was
    assert distances(compiled, ("2.0",), second_order=True)["2.0"].isfinite().all()
    compiled(X)
    assert backend.runs == runs + 1  # compiled again afterwards
    for at in (("input",), ("input", "2.0")):
        measured = margins.measure(compiled, (X, Y), at=at).margins
        for place, values in measured.items():
            torch.testing.assert_close(values, expected[place].detach(), rtol=1e-12, atol=0)
    if way == "torch.compile":
        with pytest.raises(RuntimeError, match="second_order=True needs a gradient of a gradient"):
            distances(compiled, second_order=True)


@dynamo
def test_compile_and_a_module_named_output() -> None:
    torch.compiler.reset()
    network = zoo.ZOO[1].network()
    x = zoo.ZOO[1].inputs()
    compiled: Any = torch.compile(network, backend=Backend())
    compiled(x)
    assert distances(compiled, ("output",), x)["output"].isfinite().all()


@dynamo
def test_compile_and_frozen_statistics() -> None:
    """Hooks in a compiled network are skipped: were it not run uncompiled, frozen would silently be coupled."""
    torch.compiler.reset()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    compiled: Any = torch.compile(network, backend=Backend())
    results: dict[tuple[bool, str], Tensor] = {}
    for statistics in ("coupled", "frozen"):
        for model in (compiled, network):
            with places.watch(model, ("input",), statistics=statistics) as at:
                scores = model(X)
            results[model is compiled, statistics] = margins.distance(scores, Y, at=at)["input"]
    torch.testing.assert_close(results[True, "coupled"], results[False, "coupled"], rtol=1e-12, atol=0)
    torch.testing.assert_close(results[True, "frozen"], results[False, "frozen"], rtol=1e-12, atol=0)
    assert not results[True, "frozen"].allclose(results[True, "coupled"], rtol=0.01)
