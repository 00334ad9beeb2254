"""gmlake info."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmlake import _core
from gmlake.commands import common
from gmlake.errors import Error
from gmlake.settings import one_of
from gmlake.tables import new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    import argparse

    from gmlake._core import KnobInfo

_DRIVERS = ("cuda", "host", "sim")
_MAX_DEVICES = 64


class InfoCommand(common.Command):
    """Show the version, the drivers and devices found, and the policies with settings."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Ask each driver; an absent one is an answer, not an error."""
        about = {
            "version": _core.__version__,
            "drivers": [entry for name in _DRIVERS for entry in _devices(name)],
            "policies": [
                {"name": name, "help": line}
                for name, line in zip(_core.policies(), _core.policy_help(), strict=True)
            ],
            "knobs": [dict(knob) for knob in _core.knobs()],
        }
        if args.json:
            common.print_json(about)
        else:
            _print_tables(about)
        return 0


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
        entry["reason"] = str(error)
        return entry
    entry["available"] = True
    if not entry["has_virtual_memory"]:
        entry["reason"] = (
            "the device cannot map memory at chosen addresses: the policies stitch and plan serve "
            "from one allocation, of the capacity; expandable and gmlake-paper do not run"
        )
    return entry


def _print_tables(about: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.text import Text

    drivers = new_table(Text(f"gmlake {about['version']}"))
    for name in ("driver", "device", "granularity", "memory", "virtual memory"):
        drivers.add_column(name)
    for entry in about["drivers"]:
        if entry["available"]:
            cells = [
                entry["name"],
                format_size(entry["granularity_bytes"]),
                format_size(entry["total_bytes"]),
                "yes" if entry["has_virtual_memory"] else f"no: {entry['reason']}",
            ]
        else:
            cells = [f"none: {entry['reason']}", "-", "-", "-"]
        drivers.add_row(entry["driver"], *(Text(cell) for cell in cells))
    policies = new_table(Text("policies"))
    policies.add_column("name", no_wrap=True)
    policies.add_column("what it is")
    for policy in about["policies"]:
        policies.add_row(Text(policy["name"]), Text(policy["help"]))
    knobs = new_table(Text("settings (--set NAME=VALUE)"))
    knobs.add_column("name", no_wrap=True, min_width=max(len(k["name"]) for k in about["knobs"]))
    for name in ("policies", "default", "meaning"):
        knobs.add_column(name)
    for knob in about["knobs"]:
        row = (knob["name"], knob["policies"], _default(knob), _meaning(knob))
        knobs.add_row(*(Text(cell) for cell in row))
    common.print_report(Group(drivers, policies, knobs))


def _default(knob: KnobInfo) -> str:
    if knob["words"]:
        return knob["words"][knob["default"]]
    return "no limit" if knob["default"] == 2**64 - 1 else str(knob["default"])


def _meaning(knob: KnobInfo) -> str:
    return f"{one_of(knob['words'])}: {knob['help']}" if knob["words"] else knob["help"]


COMMAND = InfoCommand()
