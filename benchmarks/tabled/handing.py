"""Tables of gpu/handing.py: memory passes between two processes."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, marked, number, table

_WAYS = {
    "shared": '`share="device"`',
    "default": "PyTorch's default, `empty_cache()`",
    "expandable": "expandable segments, `empty_cache()`",
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
