"""Tables of gpu.compare and gpu.planned: one training, and one whose steps are planned."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, marked, number, spread, table, torch_of

_ALLOCATORS = ("expandable", "default", "async", "gmlake")
_WAYS = ("expandable", "default", "stitch", "planned", "loaded")


def training(result: dict[str, Any]) -> str:
    """Return a row for each allocator; each ran once."""
    rows = []
    for name in _ALLOCATORS:
        told = result["runs"][name]
        figures = [
            *(number(told[f"peak_{what}_bytes"], 2, GIB) for what in ("allocated", "reserved")),
            number(told["utilization"], 4),
            number(told["device_bytes"], 2, GIB),
            number(told["steps_per_second"], 2),
            number(sum(told["seconds"]), 2),
            str(told["largest"]["batch"]),
        ]
        rows.append([f"`{name}`", *(marked(figure, 1) for figure in figures)])
    return table(
        "allocator | allocated, GiB : | reserved, GiB : | utilization : | of the device, GiB : "
        f"| steps/s : | all {result['steps']} steps, s : | largest batch :",
        rows,
        caption(result["run"], [1], versions=torch_of(result["versions"])),
    )


def planned(result: dict[str, Any]) -> str:
    """Return a row for each way of serving the steps."""
    rows = []
    for name in _WAYS:
        told = result["runs"][name]
        runs = len(told["rounds_seconds"])
        rows.append(
            [
                f"`{name}`",
                *(
                    marked(number(told[f"peak_{what}_bytes"], 3, GIB), runs)
                    for what in ("allocated", "reserved")
                ),
                number(told["utilization"], 4),
                spread(told["rounds_seconds"], 3),
            ]
        )
    versions = result["runs"]["default"]["versions"]
    return table(
        "way | allocated, GiB : | reserved, GiB : | utilization : | s per step :",
        rows,
        caption(result["run"], [result["rounds"]], versions=torch_of(versions)),
    )
