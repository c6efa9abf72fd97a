"""Optional imports: packages that the extras of widemargin install."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

EXTRAS: dict[str, tuple[str, ...]] = {
    "attacks": ("foolbox",),
    "demo": ("mlxtend",),
    "files": ("pyarrow", "PIL"),
    "hub": ("datasets",),
    "huggingface": ("transformers", "accelerate"),
    "lightning": ("lightning",),
    "ray": ("ray",),
    "report": ("altair", "vl_convert", "jinja2"),
    "tables": ("pandas",),
    "tensorboard": ("tensorboard", "torch.utils.tensorboard"),
    "torchmetrics": ("torchmetrics",),
    "train": ("lightning_fabric",),
    "vision": ("torchvision",),
}
"""Packages that each extra installs, by their import names."""


def import_optional(module: str, purpose: str = "") -> ModuleType:
    """The imported module. Raises an `ImportError` that names the extra if its package is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        for package in (package for packages in EXTRAS.values() for package in packages):
            if f"{error.name}.".startswith(f"{package}."):
                raise not_installed(package, purpose) from error
        raise


def check_installed(*packages: str, purpose: str = "") -> None:
    """Raise an `ImportError` that names the extra unless all `packages` are installed; imports none of them."""
    for package in packages:
        if not is_installed(package):
            raise not_installed(package, purpose)


def is_installed(*packages: str) -> bool:
    """Whether all `packages` are installed; imports none of them."""
    return all(importlib.util.find_spec(package) is not None for package in packages)


def not_installed(package: str, purpose: str = "") -> ImportError:
    """The error that says that `purpose` needs `package`, and which extra installs it."""
    extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
    missing = f"{purpose} needs {package}, which is not installed" if purpose else f"{package} is not installed"
    return ImportError(f"{missing}: pip install 'widemargin[{extra}]'", name=package)
