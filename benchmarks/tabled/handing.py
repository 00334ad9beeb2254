"""Tables of gpu/handing.py and gpu/handing_costs.py: memory passes between two processes."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, MIB, caption, marked, number, table

_WAYS = {
    "shared": '`share="device"`',
    "default": "PyTorch's default, `empty_cache()`",
    "expandable": "expandable segments, `empty_cache()`",
}
_COSTS = {
    "released": "chunks are released, and as many created",
    "passed": "chunks are passed on as files",
    "malloc": "blocks of cuMemAlloc are freed, and as many allocated",
}


def turns(result: dict[str, Any]) -> str:
    """Return a row for each way: how long a turn waited for its memory, in ms."""
    rows = []
    for way, name in _WAYS.items():
        told = result["ways"].get(way)
        if told is None:
            continue
        rows.append(
            [
                name,
                str(told["turns"]),
                *(
                    marked(number(told[which] * 1e3, 0), 1)
                    for which in ("median_seconds", "p99_seconds", "most_seconds")
                ),
                str(len(told["refused"])),
                "equal" if told["has_same_bits"] else "differ",
                f"{100 * told['used_after_the_kill']:.1f} %",
            ]
        )
    handed = number(result["ways"]["shared"]["handed_bytes"], 1, GIB)
    return table(
        "allocator | turns : | median, ms : | 99th percentile : | longest : | refused : | bits "
        "| of the device, after the kill :",
        rows,
        caption(result["run"], f"{handed} GiB handed over in each turn; † one run"),
    )


def costs(result: dict[str, Any]) -> str:
    """Return a row for each way and size of chunk: how long the calls of the driver take, in ms."""
    rows = []
    title = ""
    for told in result["ways"]:
        name = _COSTS[told["way"]]
        steps = [(step.replace("_", " "), each) for step, each in told["steps_ms"].items()]
        rows.append(
            [
                "" if name == title else name,
                number(told["chunk_bytes"], 0, MIB),
                number(sum(each for _, each in steps), 0),
                ", ".join(f"{step} {number(each, 1)}" for step, each in steps),
            ]
        )
        title = name
    handed = number(result["handed_bytes"], 0, GIB)
    return table(
        "way | MiB in a chunk : | ms : | of which",
        rows,
        caption(result["run"], f"{handed} GiB handed over, medians of rounds"),
    )
