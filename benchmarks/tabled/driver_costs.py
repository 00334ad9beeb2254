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
_RANGE = {
    "reserve": "cuMemAddressReserve",
    "map_each": "cuMemMap, each",
    "set_access_once": "cuMemSetAccess, one call",
    "set_access_each": "cuMemSetAccess, one call each",
    "unmap_once": "cuMemUnmap, one call",
    "unmap_each": "cuMemUnmap, one call each",
}
_MOST_WITH_TENTHS = 1000


def _table(result: dict[str, Any], kind: str, heading: str, titles: dict[str, str]) -> str:
    found = [told for told in result["calls"] if told["kind"] == kind]
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
        for call, title in titles.items()
    ]
    shown = [_size(size) if kind == "chunk" else f"{size:,}" for size in sizes]
    headings = " | ".join([heading, *(f"{size} :" for size in shown)])
    about = "medians of many calls in one process"
    return table(headings, rows, caption(result["run"], about))


def _size(size: int) -> str:
    return f"{size >> 30} GiB" if size >> 30 else f"{size >> 20} MiB"


def handles(result: dict[str, Any]) -> str:
    """Return microseconds of each call for one handle, by its size."""
    return _table(result, "chunk", "one handle or block, us", _ONE)


def ranges(result: dict[str, Any]) -> str:
    """Return microseconds of each call for a range, by the number of its handles."""
    return _table(result, "range", "handles of 2 MiB in one range, us for all", _RANGE)
