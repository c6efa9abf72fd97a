"""Where a number comes from: commit, versions and hardware, written beside every result."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "lightning-fabric", "lightning")


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Commit, versions and hardware of this run, as plain values."""
    return {"commit": _commit(), "versions": _versions(), "hardware": _hardware(device)}


def _commit() -> str | None:
    """The commit that WIDEMARGIN_COMMIT names, for copies without the right history; else that of the checkout."""
    if named := os.environ.get("WIDEMARGIN_COMMIT"):
        return named
    try:
        out = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return out.stdout.strip()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("widemargin", *_PACKAGES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # an optional one, or widemargin run from its source folder
            continue
    return found


def _hardware(device: str) -> dict[str, Any]:
    import torch

    hardware: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "device": device}
    if device.startswith("cuda"):
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return hardware
