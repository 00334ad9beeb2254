"""Tables of gpu.features: what else of PyTorch a program may use."""

from __future__ import annotations

import statistics
from typing import Any

from tabled.compared import ALLOCATORS
from tabled.markdown import GIB, caption, marked, number, spread, table, torch_of

_FIGURES = (
    ("convnet", "ResNet-50 with `cudnn.benchmark`, 128 pictures", "step_seconds", "s per step"),
    ("convnet", "", "peak_reserved_bytes", "reserved, GiB"),
    ("replay", "100 replays of a captured training step of 16 layers", "step_seconds", "s"),
    ("late", "a frozen Llama 7B, loaded before gmlake begins", "peak_allocated_bytes", "live, GiB"),
    ("late", "", "peak_reserved_bytes", "reserved, GiB"),
    ("late", "", "step_seconds", "s per step"),
    ("compiled", '`mode="reduce-overhead"`, five batch sizes', "step_seconds", "s per step"),
    ("observed", "snapshot at the end of memory", "lines", "blocks that name the user's line"),
)


def _caption(told: dict[str, Any]) -> str:
    runs = [len(rounds) for rounds in told["allocators"].values()]
    return caption(told["run"], runs, versions=torch_of(told["run"]["torch"]))


def features(result: dict[str, Any]) -> str:
    """Return a row for each figure of each feature."""
    rows = []
    for name, title, figure, words in _FIGURES:
        row = [title, words]
        for each in ALLOCATORS:
            values = [run[figure] for run in result[name]["allocators"].get(each, [])]
            if not values:
                row.append("")
            elif figure.endswith("_seconds"):
                row.append(spread(values, 5 if max(values) < 1 / 16 else 3))
            elif figure.endswith("_bytes"):
                row.append(marked(number(statistics.median(values), 2, GIB), len(values)))
            else:
                row.append(marked(number(values[0], 0), len(values)))
        rows.append(row)
    shown = dict.fromkeys(name for name, *_ in _FIGURES)
    return table(
        "feature | | expandable segments : | PyTorch's default : | gmlake :",
        rows,
        *(_caption(result[name]) for name in shown),
    )
