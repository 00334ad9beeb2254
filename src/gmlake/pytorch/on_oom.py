"""Writes a file about the memory of a process when that runs out.

The file is PyTorch's snapshot, with the refusal as its last event, so that every tool for snapshots
reads it. PyTorch calls an observer before it raises; observers cannot be removed, so one stays, and
does nothing unless a file is wanted.
"""

from __future__ import annotations

import _thread
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gmlake import _core
from gmlake.pytorch import compat, notices
from gmlake.trace.trace import DEVICE_BYTES, REFUSAL, REFUSED_BY
from gmlake.units import format_size

MOST_EVENTS: Final = 200_000
"""Events that PyTorch keeps on each device if lines are wanted."""


class _Process:
    """State of this process, guarded by the regions' lock."""

    def __init__(self) -> None:
        self.wanted = ""  # the file; "": none
        self.written: dict[str, str] = {}  # what to do about each that was wanted once
        self.is_prepared = False
        self.has_lines = False


_process = _Process()


def prepare(*, has_lines: bool) -> None:
    """Watch for refusals once CUDA starts; has_lines: also keep a history."""
    _process.has_lines = has_lines
    if not _process.is_prepared:
        _process.is_prepared = True
        compat.when_cuda_starts(_watch)


def write_to(path: str) -> None:
    """Set the file to write to from now on; "" for none."""
    _process.wanted = path


def _watch() -> None:
    if _process.has_lines and not compat.is_recording_history():
        compat.record_history(MOST_EVENTS)
    compat.watch_refusals(_refused)


def _refused(device: int, size_bytes: int, _limit_bytes: int, free_bytes: int) -> None:
    """Write the file; called inside PyTorch's allocator, so it must not raise."""
    wanted = _process.wanted
    if not wanted:
        return
    if wanted in _process.written:
        _core.torch_note_refusals(
            f"torch.cuda.memory_summary(); for the first one: {_process.written[wanted]}"
        )
        return
    _process.written[wanted] = f"{wanted} could not be written"
    try:
        from gmlake.pytorch import documents  # which enabling gmlake does without

        document = compat.memory_snapshot()
        documents.add_part(document)
        document = _with_refusal(document, device, size_bytes, free_bytes)
        path = write_new(wanted, document)
    except KeyboardInterrupt:
        _thread.interrupt_main()
    except Exception as error:  # noqa: BLE001 (whatever it is, the program goes on)
        notices.say(f"{wanted} could not be written: {error}")
    else:
        what_to_do = _process.written[wanted] = f"gmlake view {path}"
        _core.torch_note_refusals(what_to_do)
        notices.say(
            f"out of memory on device {device}, {format_size(size_bytes)} were requested; "
            f"to see what holds the memory: {what_to_do}"
        )


def _with_refusal(
    document: dict[str, Any], device: int, size_bytes: int, free_bytes: int
) -> dict[str, Any]:
    """Return a snapshot whose history ends with the refusal, even if PyTorch keeps no history.

    It also records the size of the device, which tells how much others use, and, where gmlake
    refuses, its account of that.
    """
    settings = document["allocator_settings"]
    settings[f"{DEVICE_BYTES}.{device}"] = compat.device_bytes(device)
    account = _core.torch_refusal()
    if account is not None:
        settings[f"{REFUSED_BY}.{device}"] = account.pop("policy")
        settings[f"{REFUSAL}.{device}"] = account
        size_bytes, free_bytes = account["size_bytes"], account["free_bytes"]
    stream, pool = 0, (0, 0)
    if account is not None:
        stream, pool = account["stream"], (account["pool_owner"], account["pool_number"])
    events = document["device_traces"][device]
    refusal = next((event for event in events[:-3:-1] if event["action"] == "oom"), None)
    if refusal is None:  # the last but one, as the last is this snapshot, where there is a history
        refusal = {"action": "oom", "time_us": time.time_ns() // 1000, "frames": []}
        events.append(refusal)
    refusal |= {"size": size_bytes, "device_free": free_bytes, "stream": stream, "pool_id": pool}
    return document


def write_new(wanted: str, document: dict[str, Any]) -> Path:
    """Write a snapshot as a new file of this or a similar name; return its path. Raises OSError."""
    for path in _names(Path(wanted)):
        with suppress(FileExistsError), path.open("xb") as file:
            try:
                pickle.dump(document, file, protocol=4)
            except BaseException:
                path.unlink()
                raise
            return path
    raise OSError("all such files exist already")


def _names(path: Path) -> Iterator[Path]:
    """Yield the names to try: with the rank if there are several, then with the process."""
    rank = os.environ.get("RANK", "")
    stem = f"{path.stem}-rank{rank}" if rank.isdigit() else path.stem
    yield path.with_name(f"{stem}{path.suffix}")
    yield path.with_name(f"{stem}-{os.getpid()}{path.suffix}")
