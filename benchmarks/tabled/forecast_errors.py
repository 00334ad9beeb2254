"""Tables of forecast/compare.py: what forecasts missed by."""

from __future__ import annotations

import statistics
from typing import Any

from tabled.compared import ALLOCATORS, NAMES
from tabled.markdown import caption, number, table, torch_of

_WITHIN = (1, 2)


def errors(result: dict[str, Any]) -> str:
    """Return the errors of all programs of one device, in percent of what was measured."""
    told = list(result["programs"].values())
    found = {"live": [each["live"]["error"] for each in told]}
    for what, words in (("reserved", "reserved"), ("in_use", "in use on the device")):
        for allocator in ALLOCATORS:
            found[f"{words}: {NAMES[allocator]}"] = [
                each[allocator][what]["error"] for each in told
            ]
    rows = []
    for title, values in found.items():
        percents = sorted(100 * abs(value) for value in values)
        within = (sum(percent <= most for percent in percents) for most in _WITHIN)
        middle = number(statistics.median(percents), 2)
        rows.append([title, middle, number(percents[-1], 2), *map(str, within)])
    run = result["run"]
    about = f"{len(told)} programs, each measured once"
    return table(
        "error, % | median : | largest : | programs within 1 % : | within 2 % :",
        rows,
        caption(run, about, versions=torch_of(result["versions"])),
    )
