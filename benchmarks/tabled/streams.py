"""Tables of gpu.streams: two trainings in turn on two streams."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, marked, number, spread, table, torch_of

_PROGRAMS = {"wavelet": "in turn", "wavelet-threads": "threads"}
_WAYS = {
    "expandable": "expandable segments",
    "default": "PyTorch's default",
    "alone": "gmlake, no lending",
    "opportunistic": "gmlake, what is complete only",
    "waitless": "gmlake, `borrow_waits=0`",
    "borrowing": "gmlake",
    "plan": "gmlake, policy `plan` without steps",
}


def _caption(result: dict[str, Any]) -> str:
    versions = result["programs"]["wavelet"]["default"]["versions"]
    return caption(result["run"], [result["rounds"]], versions=torch_of(versions))


def streams(result: dict[str, Any]) -> str:
    """Return a row for each program and way."""
    rows = []
    for name, runs in result["programs"].items():
        label = _PROGRAMS[name]
        for way, words in _WAYS.items():
            told = runs.get(way)
            if told is None:
                continue
            rows.append(
                [
                    *(label, words),
                    *(
                        marked(number(told[f"peak_{what}_bytes"], 2, GIB), result["rounds"])
                        for what in ("live", "reserved")
                    ),
                    number(told["reserved_to_live"], 3),
                    spread(told["rounds_seconds"], 3),
                    *(
                        number(told["per_step"][what], 0)
                        for what in ("cross_stream_waits", "memory_calls")
                    ),
                ]
            )
            label = ""
    return table(
        "program | way | live, GiB : | reserved, GiB : | reserved / live : | s per step : "
        "| waits : | calls :",
        rows,
        _caption(result),
    )
