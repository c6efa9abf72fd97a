"""Griffe extension for the reference: functions that share the name of a module.

`widemargin.attacks.fgsm` is a module and, after the package imports its function
`fgsm`, a function. Python returns the function; a static reader returns the module.
This extension puts the function back.
"""

from __future__ import annotations

from typing import Any

import griffe


class SameNames(griffe.Extension):
    """Replaces a module by the imported name that its package exports."""

    def on_package(
        self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any
    ) -> None:
        """Resolve all imports first: their paths lead through the modules."""
        loader.resolve_aliases(implicit=True)
        for package in (
            module for module in pkg.modules.values() if module.is_init_module
        ):
            for name in map(str, package.exports or ()):
                source = package.imports.get(name, "")
                if (
                    package.members[name].is_module
                    and source.startswith(f"{pkg.path}.")
                    and source != f"{package.path}.{name}"
                ):
                    package.members[name] = griffe.Alias(
                        name,
                        pkg[source.removeprefix(f"{pkg.path}.")],
                        parent=package,
                    )
