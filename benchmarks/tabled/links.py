"""The table of gpu.links: a region that wakes beside copies through one link and through all."""

from __future__ import annotations

import statistics
from typing import Any

from tabled.markdown import GIB, caption, counted, number, spread, table, torch_of

_WAYS = {
    "region": "`gmlake.sleep`, `gmlake.wake`",
    "one": "one copy, the GPU's own link",
    "each": "parts to and from all GPUs at once",
    "relayed": "all for one GPU, pieces through the links of all",
}


def ways(result: dict[str, Any]) -> str:
    """Return a row for each way: seconds and speed out of a GPU, and into it."""
    told = result["ways"]
    rows = []
    for way, name in _WAYS.items():
        cells = []
        for side in ("out", "in"):
            seconds = told[way][side]
            speed = told[way]["bytes"] / 1e9 / statistics.median(seconds)
            cells += [spread(seconds, 3), number(speed, 0)]
        rows.append([name, *cells, "the same" if told[way]["is_right"] else "**differ**"])
    one = told["one"]
    many = counted(len(one["out"]), "round")
    size, gpus = number(one["bytes"], 0, GIB), counted(one["gpus"], "GPU")
    return table(
        "way | out of the GPU, s : | GB/s : | into it, s : | GB/s : | bytes afterwards",
        rows,
        caption(
            result["run"],
            f"{size} GiB, {gpus}, {many} after the first, in one process",
            versions=torch_of(one["torch"]),
        ),
    )
