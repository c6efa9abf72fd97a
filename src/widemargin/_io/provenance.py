"""Provenance of results: commit, versions and hardware."""

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
    """The commit in WIDEMARGIN_COMMIT (for copies without history), else that of the checkout, else None."""
    if named := os.environ.get("WIDEMARGIN_COMMIT"):
        return named
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        quiet = subprocess.DEVNULL
        return subprocess.check_output(command, cwd=Path(__file__).parent, stderr=quiet, text=True, timeout=10).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("widemargin", *_PACKAGES):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # an optional one, or widemargin run from its source folder
            continue
    return versions


def _hardware(device: str) -> dict[str, object]:
    import torch

    hardware: dict[str, object] = {"machine": platform.machine(), "cpus": os.cpu_count(), "device": device}
    if device.startswith("cuda"):
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return hardware
