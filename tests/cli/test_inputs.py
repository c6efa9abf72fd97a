"""The device that `--device` names; the other inputs of a command are tested with `measure`."""

from __future__ import annotations

import pytest
import torch

from widemargin.cli.inputs import find_device


def test_the_processor_by_name() -> None:
    assert find_device("cpu") == torch.device("cpu")


def test_auto_is_a_device_that_works() -> None:
    assert torch.ones(1, device=find_device("auto")).sum().item() == 1


@pytest.mark.parametrize(("there", "found"), [(None, "cpu"), ("cuda", "cuda")])
def test_auto_takes_the_accelerator(monkeypatch: pytest.MonkeyPatch, there: str | None, found: str) -> None:
    answer = None if there is None else torch.device(there)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: answer)
    assert find_device("auto") == torch.device(found)


@pytest.mark.parametrize("name", ["nothing", "", "cuda:99", "meta", "cpu:cpu", "[red]"])
def test_a_device_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ValueError) as told:
        find_device(name)
    assert str(told.value).startswith(f"--device is {name!r}, which this machine can't use: ")
    assert "\n" not in str(told.value)
