"""The device that `--device` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device(name: str) -> torch.device:
    """The device `name`, after checking that it works; `auto` is the accelerator of this machine, or the CPU."""
    import torch

    if name == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        return torch.device("cpu") if found is None else found
    try:
        chosen = torch.device(name)
        torch.empty(1, device=chosen).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device is {name!r}, which this machine can't use: {str(error).splitlines()[0]}") from error
    return chosen
