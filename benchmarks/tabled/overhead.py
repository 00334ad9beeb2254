"""Tables of overhead.py: host time of a tensor that comes and goes."""

from __future__ import annotations

from typing import Any

from tabled.markdown import caption, spread, table, torch_of

_WAYS = {
    "expandable": "expandable segments",
    "default": "PyTorch's own",
    "native": "inside `enabled()`",
    "outside": "outside",
    "on_oom": "`on_oom`",
    "on_oom_lines": "with lines",
}
_SIZES = {"mix": "nine sizes at random, 64 live"}


def overhead_spreads(result: dict[str, Any]) -> str:
    """Return a row for each size, with the least and the most of the processes in brackets."""
    ways = [way for way in _WAYS if way in result["ways"]]
    rows = [
        [_SIZES.get(size, size), *(spread(found[way]["processes_ns"], 0) for way in ways)]
        for size, found in result["pairs"].items()
    ]
    return _table(result, ways, rows)


def _table(result: dict[str, Any], ways: list[str], rows: list[list[str]]) -> str:
    run = result["run"]
    processes = [len(found["default"]["processes_ns"]) for found in result["pairs"].values()]
    headings = " | ".join(["ns", *(f"{_WAYS[way]} :" for way in ways)])
    return table(headings, rows, caption(run, processes, versions=torch_of(run["torch"])))
