"""The plugin for pytest: what annexes add to it. Imports nothing else before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake import annexes

if TYPE_CHECKING:
    import pytest


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins of the annexes, whose options pytest then asks for, too."""
    for plugin in annexes.hooked("pytest"):
        pluginmanager.register(plugin)
