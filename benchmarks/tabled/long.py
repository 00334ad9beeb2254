"""Tables of gpu.long: trainings of thousands of steps."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, MIB, caption, marked, number, table, torch_of

_PROGRAMS = {
    "varying": "no two steps alike",
    "turns": "two in turn on two streams, one of them asleep every 100 steps, and a graph",
}
_ALLOCATORS = {
    "default": "PyTorch's default",
    "expandable": "expandable segments",
    "gmlake": "gmlake",
}


def runs(result: dict[str, Any]) -> str:
    """Return a row for each program and allocator."""
    rows = []
    for name, found in result["programs"].items():
        label = f"{_PROGRAMS[name]}, {next(iter(found.values()))['steps']:,} steps"
        for allocator, words in _ALLOCATORS.items():
            told = found.get(allocator)
            if told is None:
                continue
            rows.append(
                [
                    *(label, words),
                    number(told["peak_live_bytes"], 3, GIB),
                    marked(number(told["peak_reserved_bytes"], 3, GIB), 1),
                    *(number(told[f"{what}_risen_bytes"], 0, MIB) for what in ("reserved", "host")),
                    "" if result["at_once"] else number(told["seconds"], 1),
                    "the same" if told["has_same_losses"] else "differ",
                ]
            )
            label = ""
    first = next(iter(next(iter(result["programs"].values())).values()))
    return table(
        "training | allocator | live, GiB : | reserved, GiB : | reserved rose, MiB : "
        "| host memory rose, MiB : | seconds : | losses",
        rows,
        caption(result["run"], [1], versions=torch_of(first["torch"])),
    )
