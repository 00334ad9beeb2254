"""Names of a package that are loaded on first use, so that importing the package costs little."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from gmlake.errors import needing_torch


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's __getattr__.

    names: those of each module, by module, separated by blanks.
    """
    modules = {name: module for module, text in names.items() for name in text.split()}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needing_torch(f"{package}.{name}"):
            value: object = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
