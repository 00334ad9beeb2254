"""Tables of driver_costs.py: what each driver call costs on a device."""

from __future__ import annotations

from typing import Any

from tabled.markdown import caption, table

_ONE = {
    "create": "cuMemCreate",
    "map": "cuMemMap",
    "set_access": "cuMemSetAccess",
    "unmap": "cuMemUnmap",
    "release": "cuMemRelease",
    "malloc": "cuMemAlloc",
    "free": "cuMemFree",
}
_MOST_WITH_TENTHS = 1000


def _size(size: int) -> str:
    return f"{size >> 30} GiB" if size >> 30 else f"{size >> 20} MiB"


def handles(result: dict[str, Any]) -> str:
    """Return microseconds of each call for one handle, by its size."""
    found = [told for told in result["calls"] if told["kind"] == "chunk"]
    sizes = list(dict.fromkeys(told["size"] for told in found))
    medians = {(told["call"], told["size"]): told["median_ns"] / 1e3 for told in found}
    rows = [
        [
            title,
            *(
                f"{us:,.1f}" if us < _MOST_WITH_TENTHS else f"{us:,.0f}"
                for us in (medians[call, size] for size in sizes)
            ),
        ]
        for call, title in _ONE.items()
    ]
    headings = " | ".join(["one handle or block, us", *(f"{_size(size)} :" for size in sizes)])
    about = "medians of many calls in one process"
    return table(headings, rows, caption(result["run"], about))
