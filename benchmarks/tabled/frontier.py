"""Tables of gpu.frontier: training on longer and longer sequences until memory ends."""

from __future__ import annotations

from typing import Any

from gpu.frontier import medians
from gpu.settings import FRONTIERS
from tabled.compared import NAMES, short
from tabled.markdown import caption, marked, number, table, torch_of

_ORDER = ("expandable", "default", "async", "gmlake")
_NAMES = {**NAMES, "async": "`cudaMallocAsync`"}


def ends(result: dict[str, Any]) -> str:
    """Return a row for each model and allocator: where it ends, and how fast it is until then."""
    rows, captions = [], []
    for model in dict.fromkeys(run["model"] for run in result["runs"]):
        runs = [run for run in result["runs"] if run["model"] == model and "failed" not in run]
        found = medians(runs)
        best: dict[int, float] = {}
        for by_length in found.values():
            for length, (_, speed, _) in by_length.items():
                best[length] = max(speed, best.get(length, 0.0))
        counts = {name: sum(run["allocator"] == name for run in runs) for name in found}
        for name in (name for name in _ORDER if found.get(name)):
            shares = [speed / best[length] for length, (_, speed, _) in found[name].items()]
            last = max(found[name])
            rows.append(
                [
                    *(FRONTIERS[model], short(runs[0]["device"]), _NAMES[name]),
                    f"{counts[name]}",
                    marked(f"{last:,}", counts[name]),
                    marked(number(found[name][last][1], 0), counts[name]),
                    marked(f"{min(shares):.3f}", counts[name]),
                ]
            )
        run, torch = runs[0].get("run") or result["run"], torch_of(runs[0]["torch"])
        captions.append(caption(run, sorted(set(counts.values())), versions=torch))
    return table(
        "model | GPU | allocator | runs : | longest sequence that fits : | tokens a second there : "
        "| least share of the fastest, over all lengths :",
        rows,
        *dict.fromkeys(captions),
    )
