"""Tables of gpu.peers and gpu.sleeping: gmlake beside other libraries that do the same."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from tabled.markdown import GIB, MIB, caption, counted, marked, number, spread, table, torch_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WAYS = {
    "default": "PyTorch's default",
    "expandable": "expandable segments",
    "async": "cudaMallocAsync",
    "stitch": "gmlake",
    "planned": "gmlake, planned steps",
    "aimdo": "comfy-aimdo, a scope for each block",
    "aimdo-whole": "comfy-aimdo, one scope",
}
_SLEEPERS = {
    "gmlake": "`gmlake.sleep`, `gmlake.wake`",
    "compat": "the same by torch_memory_saver's interface",
    "torch_memory_saver": "torch_memory_saver, default settings",
    "torch_memory_saver_retained": "torch_memory_saver, `retain_cpu_backup`",
    "vllm": "the allocator of vLLM",
    "vllm_registered": "the same, PyTorch registers host memory with threads",
}


def _calls(many: Sequence[int | None]) -> str:
    known = [each for each in many if each is not None]
    if len(known) < len(many):
        return "not counted"
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _row(title: str, told: dict[str, Any], live: float) -> Iterable[str]:
    runs = len(told["seconds"]["device"])
    yield title
    held = (told["peak_reserved_bytes"], told["device_bytes"])
    for size in held:
        yield f"{marked(number(size, 3, GIB), runs)}, {number(live / size, 3)}"
    for step in ("first", "repeated"):
        yield _calls(told[f"{step}_calls"])
    for part in ("host", "device"):
        yield spread(told["seconds"][part], 2, 1e-3)
    yield "the same" if told["has_same_pictures"] else "**differs**"


def inference(result: dict[str, Any]) -> str:
    """Return a row for each way of serving the step.

    What lives is the program's, so all are compared with what PyTorch's allocator says of it.
    """
    default = result["ways"]["default"]
    live = default["peak_allocated_bytes"]
    rows = []
    for way, title in _WAYS.items():
        told = result["ways"].get(way)
        if told is None:
            continue
        failed = [title, f"failed: {told.get('failed')}", *[""] * 6]
        rows.append(failed if "failed" in told else list(_row(title, told, live)))
    return table(
        "way | reserved, GiB : | of the device, GiB : "
        "| calls in the first step : | in a repeated one : | host, ms : | device, ms : | picture",
        rows,
        caption(result["run"], [result["rounds"]], versions=torch_of(default)),
    )


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
