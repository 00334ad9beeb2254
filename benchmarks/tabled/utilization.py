"""Tables of utilization.py: recordings replayed under every policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabled.markdown import GIB, caption, number, table

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARES = ("caching", "expandable", "stitch")
_COSTS = ("expandable", "stitch")


def _group(title: str, names: tuple[str, ...]) -> list[str]:
    return [f"{title}: {names[0]} :", *(f"{name} :" for name in names[1:])]


def _table(
    result: dict[str, Any], headings: list[str], row: Callable[[dict[str, Any]], list[str]]
) -> str:
    traces: dict[str, dict[str, Any]] = {}
    for told in result["results"]:
        traces.setdefault(told["trace"], {})[told["policy"]] = told
    rows = [[name, *row(found)] for name, found in traces.items()]
    about = "a replay comes to the same each time"
    return table(" | ".join(["trace", *headings]), rows, caption(result["run"], about))


def reserved(result: dict[str, Any]) -> str:
    """Return live bytes as a share of what was reserved, and the price of all driver calls."""
    headings = ["live GiB :", *(f"{name} :" for name in _SHARES), *_group("driver ms", _COSTS)]
    return _table(
        result,
        headings,
        lambda found: [
            number(found["stitch"]["peak_live_bytes"], 2, GIB),
            *(number(found[name]["utilization"], 4) for name in _SHARES),
            *(number(found[name]["driver_time_ns"], 0, 1e6) for name in _COSTS),
        ],
    )
