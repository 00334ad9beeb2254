"""Tables of gpu.graphs: what CUDA graphs cost in memory and in time."""

from __future__ import annotations

from typing import Any

from tabled.markdown import MIB, caption, marked, number, table, torch_of

_WAYS = {
    "expandable": "expandable segments",
    "default": "PyTorch's default",
    "gmlake": "gmlake",
    "turns": "taking turns",
}
_POOLS = {
    "one-ascending": "one, sizes ascending",
    "one-descending": "one, sizes descending",
    "own": "one for each graph",
}


def _caption(result: dict[str, Any], runs: list[int] | str) -> str:
    return caption(
        result["run"], runs, versions=torch_of(result["replays"]["default"].get("torch"))
    )


def decode(result: dict[str, Any]) -> str:
    """Return what the graphs of a server added, by the kind of their pools."""
    rows = [
        [
            title,
            *(
                marked(number(result["decode"][pool][way]["added_reserved_bytes"], 0, MIB), 1)
                for way in _WAYS
            ),
        ]
        for pool, title in _POOLS.items()
    ]
    headings = " | ".join(["pools of the graphs, MiB", *(f"{name} :" for name in _WAYS.values())])
    return table(headings, rows, _caption(result, [1]))
