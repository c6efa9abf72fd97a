"""Two processes give the weights of one on the joint batch, for losses that take gradients inside as well."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import FileStore  # type: ignore[attr-defined]

import widemargin as wm
from subprocesses import run_two
from training.cases import CASES, CPU, arguments, network, samples
from widemargin import losses
from widemargin.training import Devices, distributed

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what two processes made of all cases."""
    folder = tmp_path_factory.mktemp("two")
    run_two(str(HERE / "one_of_two.py"), str(folder))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_weights_of_one(name: str, two: Path) -> None:
    alone = wm.fit(**arguments(name))
    start = arguments(name)["model"].state_dict()
    together = load_file(two / f"{name}.0.safetensors")
    for key, value in alone.model.state_dict().items():
        torch.testing.assert_close(together[key], value, rtol=0, atol=1e-10)
    assert any(not torch.equal(start[key], value) for key, value in together.items())
    rows = json.loads((two / "0.json").read_text())[name]
    assert_close_rows(rows, list(alone.history.rows))


def test_two_processes_go_on_from_a_checkpoint(two: Path) -> None:
    alone = wm.fit(**(arguments("large margin") | {"loss": losses.large_margin(gamma=2.0)}))
    together = load_file(two / "resumed.0.safetensors")
    for key, value in alone.model.state_dict().items():
        torch.testing.assert_close(together[key], value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [*CASES, "resumed", "batch norm"])
def test_the_two_processes_agree_bit_for_bit(name: str, two: Path) -> None:
    first, second = (load_file(two / f"{name}.{rank}.safetensors") for rank in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_processes_that_fit_starts_itself_give_the_same_weights() -> None:
    """float32, by Fabric's launcher; the network of the caller gets the weights."""
    settings: dict[str, Any] = {
        "loss": losses.large_margin(gamma=2.0),
        "optimizer": wm.training.SGD(lr=0.1),
        "epochs": 2,
        "batch_size": 20,
    }
    data = samples(dtype=torch.float32)
    alone = wm.fit(network(dtype=torch.float32), data, devices=CPU, **settings)
    model = network(dtype=torch.float32)
    together = wm.fit(model, data, devices=Devices(accelerator="cpu", count=2, strategy="ddp_spawn"), **settings)
    assert together.model is model
    for key, value in alone.model.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=1e-6)
    assert_close_rows(list(together.history.rows), list(alone.history.rows), tolerance=1e-5)


def assert_close_rows(rows: list[Any], expected: list[Any], tolerance: float = 1e-10) -> None:
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected):
        assert row.keys() == wanted.keys()
        assert row["split"] == wanted["split"]
        for key in row.keys() - {"split"}:
            assert row[key] == pytest.approx(wanted[key], abs=tolerance, rel=tolerance)


@pytest.mark.parametrize("started", [False, True])
def test_a_process_that_was_started_for_a_training_leaves_its_group(tmp_path: Path, started: bool) -> None:
    store = FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        distributed.leave_group(caller=os.getppid() if started else os.getpid())
        assert torch.distributed.is_initialized() is not started
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
