"""Tables of recording_costs.py: what recording and publishing cost the host."""

from __future__ import annotations

from typing import Any

from tabled.markdown import caption, number, table

_MILLISECOND = 1e6
_ROWS = {
    "torch 512 B": "`torch.empty` and `del`, 512 B",
    "torch 20 MiB": "the same, 20 MiB",
    "core small": "allocate and free in C alone, 4 KiB",
    "core exact": "the same, 20 MiB",
    "core steps": "64 blocks of 8 sizes in C alone",
    "step": "a training step of a small GPT, kernels taking no time",
}
_WAYS = (("record", "history_65536"), ("frames",), ("published",))
"""What recording, recording call paths and publishing are called in a figure."""


def _time(ns: float) -> str:
    if ns >= _MILLISECOND:
        return f"{number(ns, 2, _MILLISECOND)} ms"
    return f"{number(ns, 0)} ns"


def costs(result: dict[str, Any]) -> str:
    """Return a row for each program: the time without, and how many times that with each way."""
    rows = []
    for name, title in _ROWS.items():
        told = result["figures"][name]
        ratios = [
            next((told[each]["ratio_to_off"] for each in names if each in told), None)
            for names in _WAYS
        ]
        shown = (f"{ratio:.2f} \N{MULTIPLICATION SIGN}" if ratio else "" for ratio in ratios)
        rows.append([title, _time(told["off"]["median_ns"]), *shown])
    about = f"medians of rounds in one run, beside a load of {result['load_before'][0]:.1f}"
    return table(
        "| off : | recording : | with call paths : | published :",
        rows,
        caption(result["run"], about),
    )
