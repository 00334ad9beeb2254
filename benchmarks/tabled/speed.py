"""Tables of speed.py: what a request costs the processor."""

from __future__ import annotations

from typing import Any

from tabled.markdown import caption, counted, number, table

_POLICIES = ("caching", "expandable", "gmlake-paper", "stitch", "plan")
_PAIRS = {
    "small": "4 KiB, repeatedly",
    "exact": "20 MiB, repeatedly",
    "split_merge": "other sizes each time, 10,000 live, holes",
    "split_merge_64": "the same with 64 sizes",
    "churn": "10,000 live, one replaced by another size",
    "churn_64": "the same with 64 sizes",
    "view_8": "view of 8 chunks, repeatedly",
    "view_512": "of 512 chunks",
    "view_4096": "of 4096 chunks",
    "new_view_512": "a new view of 512 chunks",
}


def pairs(result: dict[str, Any]) -> str:
    """Return nanoseconds of each pattern by policy."""
    scenarios = result["pairs"]["scenarios"]
    rows = [
        [title, *(number(scenarios[name][each]["median_ns"], 0) for each in _POLICIES)]
        for name, title in _PAIRS.items()
    ]
    headings = " | ".join(["ns", *(f"{name} :" for name in _POLICIES)])
    about = f"medians of {counted(result['pairs']['rounds'], 'round')}"
    return table(headings, rows, caption(result["run"], about))
