"""Tables of gpu.sleeping: gmlake beside other libraries that do the same."""

from __future__ import annotations

import statistics
from typing import Any

from tabled.markdown import MIB, caption, counted, number, spread, table, torch_of

_SLEEPERS = {
    "gmlake": "`gmlake.sleep`, `gmlake.wake`",
    "compat": "the same by torch_memory_saver's interface",
    "torch_memory_saver": "torch_memory_saver, default settings",
    "torch_memory_saver_retained": "torch_memory_saver, `retain_cpu_backup`",
    "vllm": "the allocator of vLLM",
    "vllm_registered": "the same, PyTorch registers host memory with threads",
}


def ways(result: dict[str, Any]) -> str:
    """Return a row for each way to let a model sleep; the first sleep takes host memory."""
    rows = []
    ran = {way: told for way, told in result["ways"].items() if "failed" not in told}
    for way, title in _SLEEPERS.items():
        if way not in ran:
            continue
        told = ran[way]
        rows.append(
            [
                title,
                number(told["first_sleep_seconds"], 2),
                *(spread(told[f"{part}_seconds"], 3) for part in ("sleep", "wake")),
                *(number(statistics.median(told["copies"][side]), 3) for side in ("out", "in")),
                number(told["stays_bytes"], 0, MIB),
            ]
        )
    if different := [way for way, told in ran.items() if not told["has_same_logits"]]:
        raise ValueError(f"logits differ: {different}")
    told = next(iter(ran.values()))
    rounds = f"{counted(len(told['sleep_seconds']), 'round')} after the first, in one process"
    return table(
        "way | first sleep, s : | sleep, s : | wake, s : | plain copy out, s : | in, s : "
        "| stays, MiB :",
        rows,
        caption(result["run"], rounds, versions=torch_of(told)),
    )
