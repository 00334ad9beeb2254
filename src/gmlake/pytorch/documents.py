"""PyTorch's snapshot of this process, with what gmlake alone knows beside it.

`gmlake run --record` has it written at a program's end, with its history, so that every tool for
snapshots reads it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
from collections.abc import Iterable
from typing import Any

import torch

from gmlake.pytorch import compat, lakes, notices, sleeping
from gmlake.pytorch.on_oom import write_new
from gmlake.snapshots import beside
from gmlake.snapshots.capture import part_of
from gmlake.trace.trace import DEVICE_NAME, OTHER_BYTES


def document() -> dict[str, Any] | None:
    """Return the snapshot; None where CUDA is not in use."""
    if compat.is_in_bad_fork() or not torch.cuda.is_initialized():
        return None
    found = compat.memory_snapshot()
    add_part(found)
    return found


def add_part(document: dict[str, Any]) -> None:
    """Add what gmlake alone knows to a snapshot of PyTorch."""
    parts = []
    for device, lake in lakes.by_device().items():
        counters: dict[str, Any] = dict(lake.stats())
        counters |= lakes.shares_of_device(device, counters["reserved_bytes"])
        if "other_bytes" in counters:
            settings = document["allocator_settings"]
            settings[f"{OTHER_BYTES}.{device}"] = counters["other_bytes"]
        parts.append(part_of(device, lakes.on_device(device), counters))
    sleeping.name_regions(document)
    document[beside.KEY] = beside.together(parts)


def record_to(path: str) -> None:
    """Record from the start of CUDA on, and write a file as this process exits."""
    compat.when_cuda_starts(_begin)
    atexit.register(_write, path)


def _begin() -> None:
    if not compat.is_recording_history():
        compat.record_history()


def _write(wanted: str) -> None:
    """Write the file and say where it is; nothing where CUDA never began, as in a forked child."""
    try:
        found = document()
        if found is None:
            return
        names = _name_devices(found)
        path = write_new(wanted, found)
    except Exception as error:  # noqa: BLE001 (the program has ended well, and its exit code stays)
        notices.say(f"{wanted} could not be written: {error}")
    else:
        notices.say(f"the memory of {_together(names)} is recorded: gmlake view {path}")


def _name_devices(document: dict[str, Any]) -> list[str]:
    """Add the name of each device that was asked for memory; return them."""
    found = []
    for device, events in enumerate(document["device_traces"]):
        if events:
            found.append(torch.cuda.get_device_name(device))
            document["allocator_settings"][f"{DEVICE_NAME}.{device}"] = found[-1]
    return found


def _together(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "no device"
