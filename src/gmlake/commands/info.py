"""gmlake info."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gmlake import _core
from gmlake.commands import common
from gmlake.errors import Error
from gmlake.printable import printable
from gmlake.pytorch import adapter
from gmlake.settings import as_typed, knobs, one_of, policies, policy_help
from gmlake.tables import new_table
from gmlake.units import exact_size, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gmlake._core import KnobInfo

_DRIVERS = ("cuda", "host", "sim")
_MAX_DEVICES = 64
_NO_LIMIT = 2**64 - 1
_SOURCES = {
    "package": "in the package",
    "cache": "in the user's cache, from an earlier use",
    "compiler": "compiled at the first use, in some seconds",
    "": "none",
}
"""Where the adapter to PyTorch comes from, see gmlake.pytorch.adapter.Outlook."""


class InfoCommand(common.Command):
    """Show how gmlake would serve PyTorch here, the devices found, and the policies.

    First the versions, where the adapter to PyTorch comes from, and the mode.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--knobs", action="store_true", help="list every setting (--set NAME=VALUE) as well"
        )
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Ask each driver; an absent one is an answer, not an error."""
        drivers = [entry for name in _DRIVERS for entry in _devices(name)]
        about = {
            "version": _core.__version__,
            "pytorch": _pytorch(drivers),
            "drivers": drivers,
            "policies": [
                {"name": name, "help": line}
                for name, line in zip(policies(), policy_help(), strict=True)
            ],
            "knobs": [dict(knob) for knob in knobs()],
        }
        if args.json:
            common.print_json(about)
        else:
            _print_tables(about, has_knobs=args.knobs)
        return 0


def _pytorch(drivers: list[dict[str, Any]]) -> dict[str, Any]:
    """Say how a new process would be served, without importing PyTorch."""
    seen = asdict(adapter.outlook())
    (absence, *_others) = [entry["reason"] for entry in drivers if entry["driver"] == "cuda"]
    if seen["mode"] != "off" and absence:
        seen |= {"mode": "off", "why": absence}
    return seen


def _devices(driver: str) -> list[dict[str, Any]]:
    """Describe each device of a driver; without one, a single entry says why."""
    found: list[dict[str, Any]] = []
    while len(found) < (_MAX_DEVICES if driver == "cuda" else 1):
        entry = _describe(driver, len(found))
        if found and not entry["available"]:
            break
        found.append(entry)
        if not entry["available"]:
            break
    return found


def _describe(driver: str, device: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "driver": driver,
        "device": device,
        "available": False,
        "name": None,
        "granularity_bytes": None,
        "total_bytes": None,
        "free_bytes": None,
        "has_virtual_memory": False,
        "reason": None,
    }
    try:
        entry.update(_core.device_describe(driver, device))
    except Error as error:
        entry["reason"] = str(error).removeprefix(f"{driver}: ")
        return entry
    entry["available"] = True
    if not entry["has_virtual_memory"]:
        entry["reason"] = (
            "the device cannot map memory at chosen addresses: the policies stitch and plan serve "
            "from one allocation, of the capacity; expandable does not run"
        )
    return entry


def _print_tables(about: dict[str, Any], *, has_knobs: bool) -> None:
    from rich.console import Group
    from rich.text import Text

    parts = [_head(about), _drivers(about["drivers"]), _policies(about["policies"])]
    if has_knobs:
        parts.append(_knobs(about["knobs"]))
    else:
        parts.append(Text("`gmlake info --knobs` lists the settings of the policies", "dim"))
    common.print_report(Group(*parts), piped_width=80)


def _head(about: dict[str, Any]) -> RenderableType:
    """Return the facts that decide whether gmlake will serve, as names and values."""
    from rich.table import Table
    from rich.text import Text

    pytorch = about["pytorch"]
    mode = pytorch["mode"] + (f": {pytorch['why']}" if pytorch["why"] else "")
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("gmlake", about["version"]),
        ("PyTorch", pytorch["torch"] or "not installed"),
        ("adapter", _SOURCES[pytorch["source"]]),
        ("C++ compiler", pytorch["compiler"] or "none; install g++, or name one in CXX"),
        ("mode", mode),
    ):
        table.add_row(Text(name, "bold"), Text(printable(str(value))))
    return table


def _drivers(entries: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    drivers = new_table(Text("\ndrivers"))
    for name in ("driver", "device", "granularity", "memory", "virtual memory"):
        drivers.add_column(name)
    for entry in entries:
        if entry["available"]:
            cells = [
                entry["name"],
                exact_size(entry["granularity_bytes"]),
                format_size(entry["total_bytes"]),
                "yes" if entry["has_virtual_memory"] else "no",
            ]
        else:
            cells = ["none", "-", "-", "-"]
        drivers.add_row(entry["driver"], *(Text(printable(cell)) for cell in cells))
    reasons = (
        Text(printable(f"{entry['driver']}: {entry['reason']}"), "dim")
        for entry in entries
        if entry["reason"]
    )
    return Group(drivers, *reasons)


def _policies(entries: list[dict[str, str]]) -> RenderableType:
    from rich.text import Text

    policies = new_table(Text("\npolicies"))
    policies.add_column("name", no_wrap=True)
    policies.add_column("what it is")
    for policy in entries:
        policies.add_row(Text(policy["name"]), Text(policy["help"]))
    return policies


def _knobs(entries: list[KnobInfo]) -> RenderableType:
    """Return a table of every setting, its policies below its name so that it fits 80 columns."""
    from rich.text import Text

    knobs = new_table(Text("settings (--set NAME=VALUE)"))
    knobs.add_column("name and policies", no_wrap=True)
    knobs.add_column("default", no_wrap=True)
    knobs.add_column("meaning")
    for knob in entries:
        name = Text(knob["name"]).append(f"\n  {knob['policies']}", "dim")
        knobs.add_row(name, Text(_default(knob)), Text(_meaning(knob)))
    return knobs


def _default(knob: KnobInfo) -> str:
    value = knob["default"]
    return "no limit" if value == _NO_LIMIT else as_typed(knob["name"], value)


def _meaning(knob: KnobInfo) -> str:
    return f"{one_of(knob['words'])}: {knob['help']}" if knob["words"] else knob["help"]


COMMAND = InfoCommand()
