"""Records what a program of `gmlake run --record` asks PyTorch for, and writes it at its end.

The file is PyTorch's snapshot with its history, so that every tool for snapshots reads it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
from collections.abc import Iterable
from typing import Any

import torch

from gmlake.pytorch import compat, documents, notices
from gmlake.pytorch.on_oom import write_new
from gmlake.trace.trace import DEVICE_NAME


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
        document = documents.document()
        if document is None:
            return
        names = _name_devices(document)
        path = write_new(wanted, document)
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
