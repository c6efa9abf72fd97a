"""Provenance of results: commit, versions and hardware."""

from __future__ import annotations

import os
import platform
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "lightning-fabric", "lightning")


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Commit, versions and hardware of this run, as plain values."""
    return {"commit": _commit(), "versions": _versions(), "hardware": _hardware(device)}


def _commit() -> str | None:
    """The commit in WIDEMARGIN_COMMIT (for copies without history), else of the checkout, else the wheel's version.

    Only a checkout of widemargin counts: a wheel may be installed inside another repository.
    """
    if named := os.environ.get("WIDEMARGIN_COMMIT"):
        return named
    if (checkout := _checkout(Path(__file__).resolve().parents[1])) is None:
        versions = _versions()
        return f"wheel {versions['widemargin']}" if "widemargin" in versions else None
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        quiet = subprocess.DEVNULL
        return subprocess.check_output(
            command, cwd=checkout, env=environment, stderr=quiet, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _checkout(package: Path) -> Path | None:
    """The root of the repository of widemargin of which `package` is src/widemargin; None where there is none."""
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return None
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return root if project == "widemargin" else None


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
