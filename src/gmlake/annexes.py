"""Annexes: optional parts of this package, which the allocator does not depend on.

An annex is a folder beside this file with a module `annex.py`, which defines `ANNEX`: the public
names and commands that it adds, and the hooks that it serves. That is plain data; the modules it
names are imported on first use. Deleting the folder removes the annex. Its `__init__.py` runs when
any of its modules is imported, so it must import nothing heavy.

This file is the only one of the allocator that names annexes, and only for type checkers.
"""

# ruff: noqa: TC004 (exported to type checkers only)

from __future__ import annotations

from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gmlake.diagnosis import find_inefficiencies
    from gmlake.diagnosis.operators import diagnose
    from gmlake.planner import AutoPlan, plan
    from gmlake.standin.forecasts import forecast

    __all__ = ["AutoPlan", "diagnose", "find_inefficiencies", "forecast", "plan"]

_NONE: Mapping[str, Any] = MappingProxyType({})


class Command(NamedTuple):
    """A command of the command line: a line of help, and the module whose COMMAND it is."""

    purpose: str
    module: str


class Annex(NamedTuple):
    """The names, commands and hooks that an annex adds.

    names: public names of `gmlake`, separated by blanks, by the module that defines them.
    commands: by name. hooks: the implementation of each hook, as "module:name", by the name of the
    hook; the caller of `hooked` defines the arguments.
    """

    names: Mapping[str, str] = _NONE
    commands: Mapping[str, Command] = _NONE
    hooks: Mapping[str, str] = _NONE


@cache
def annexes() -> tuple[Annex, ...]:
    """Return the annexes that are installed, in the order of their names."""
    places = sorted(Path(__file__).parent.glob("*/annex.py"))
    return tuple(import_module(f"gmlake.{place.parent.name}.annex").ANNEX for place in places)


def names() -> dict[str, str]:
    """Return the public names of all annexes, as `Annex.names`."""
    return {module: text for annex in annexes() for module, text in annex.names.items()}


def commands() -> dict[str, Command]:
    """Return the commands of all annexes by name."""
    return {name: command for annex in annexes() for name, command in annex.commands.items()}


def hooked(hook: str) -> list[Any]:
    """Load and return the annexes' implementations of a hook."""
    return [_load(annex.hooks[hook]) for annex in annexes() if hook in annex.hooks]


def _load(place: str) -> Any:  # noqa: ANN401 (each hook has a type of its own)
    module, _, name = place.partition(":")
    return attrgetter(name)(import_module(module))
