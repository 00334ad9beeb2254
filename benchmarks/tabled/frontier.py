"""Tables of gpu.frontier: training on longer and longer sequences until memory ends."""

from __future__ import annotations

import json
from typing import Any

from gpu.frontier import medians
from gpu.settings import FRONTIERS
from tabled.compared import NAMES
from tabled.markdown import caption, counted, number, spread, table, torch_of

_SHOWN = 3
"""Of each model the longest lengths."""
_ORDER = ("expandable", "default", "async", "gmlake")
_NAMES = {**NAMES, "async": "`cudaMallocAsync`"}


def _of(result: dict[str, Any], model: str) -> list[dict[str, Any]]:
    """Return the runs of a model that tell anything."""
    return [run for run in result["runs"] if run["model"] == model and "failed" not in run]


def _captions(result: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    """Return what made the runs of a model, and how many each allocator has of it."""
    by_maker: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_maker.setdefault(json.dumps(run.get("run") or result["run"]), []).append(run)
    captions = []
    for maker, those in by_maker.items():
        counts = {sum(run["allocator"] == each["allocator"] for run in those) for each in those}
        of_several = " or ".join(map(counted, sorted(counts)))
        captions.append(
            caption(
                json.loads(maker),
                counts if len(by_maker) == 1 else of_several,
                versions=torch_of(those[0]["torch"]),
            )
        )
    return captions


def speeds(result: dict[str, Any]) -> str:
    """Return a row for each model and length: tokens a second, and gmlake's time in the driver."""
    rows, captions = [], []
    for model in dict.fromkeys(run["model"] for run in result["runs"]):
        runs = _of(result, model)
        found = medians(runs)
        title = FRONTIERS[model]
        lengths = sorted({length for by_length in found.values() for length in by_length})
        for longest in lengths[-_SHOWN:]:
            cells, shares = [], []
            for name in _ORDER:
                there = [
                    told
                    for run in runs
                    for told in run["lengths"]
                    if run["allocator"] == name and told["longest"] == longest
                ]
                is_through = longest in found.get(name, {})
                cells.append(number(found[name][longest][1], 0) if is_through else "")
                if name == "gmlake" and is_through:
                    shares = [told["driver_ns"] / told["timed_seconds"] / 1e7 for told in there]
            rows.append([title, f"{longest:,}", *cells, spread(shares, 1) if shares else ""])
            title = ""
        captions += _captions(result, runs)
    return table(
        f"model | longest sequence : | {' : | '.join(_NAMES[name] for name in _ORDER)} : "
        "| gmlake's calls of the driver, % of the time :",
        rows,
        *captions,
    )
