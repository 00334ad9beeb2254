"""Traces of torch.profiler as recordings: their [memory] events, device by device.

With profile_memory=True, a trace has each allocation and free with its size, address and time. What
was live before and never freed is one block; what was reserved, and call paths, it does not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gmlake.errors import TraceError
from gmlake.snapshots.entries import ADDRESS_LIMIT, MOST_DEVICES, TIME_LIMIT
from gmlake.snapshots.wrappings import RECORD
from gmlake.trace.layout import ALIGNMENT, LARGEST_SIZE
from gmlake.trace.trace import STEP_ENDS

if TYPE_CHECKING:
    Event = dict[str, Any]

_HOST: Final = 0  # a device type


class _Change(NamedTuple):
    """An allocation, or a free below 0 bytes. total_bytes: live then, as the allocator says."""

    time_us: float
    size_bytes: int
    address: int
    total_bytes: int


def recording_of(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace of torch.profiler as a snapshot of PyTorch. Raises TraceError."""
    events = trace["traceEvents"]
    events = [one for one in events if type(one) is dict] if type(events) is list else []
    memory = [one["args"] | {"ts": one.get("ts")} for one in events if _is_memory(one)]
    changes: dict[int, list[_Change]] = {}
    for one in memory:
        device, change = one.get("Device Id"), _change(one)
        is_device = type(device) is int and 0 <= device < MOST_DEVICES
        if is_device and change and one.get("Device Type") != _HOST:
            changes.setdefault(device, []).append(change)
    if not changes:
        what = "with [memory] events of the host only" if memory else "without [memory] events"
        raise TraceError(f"a trace of torch.profiler {what}: {RECORD}")
    devices = range(max(changes) + 1)
    ends = [one for one in events if _is_step(one)]
    return {
        "segments": [],
        "device_traces": [[*_events(sorted(changes.get(one, [])))] for one in devices],
        "external_annotations": [
            {"stage": "END", "device": device, "name": one["name"], "time_us": int(time)}
            for device in sorted(changes)
            for one in ends
            if _is_time(time := one["ts"] + one["dur"])
        ],
    }


def _is_memory(event: Event) -> bool:
    return event.get("name") == "[memory]" and type(event.get("args")) is dict


def _is_step(event: Event) -> bool:
    name = event.get("name")
    numbers = {type(event.get(key)) for key in ("ts", "dur")}
    return type(name) is str and name.startswith(STEP_ENDS) and numbers <= {int, float}


def _is_time(time: object) -> bool:
    return type(time) in (int, float) and 0 <= time < TIME_LIMIT  # type: ignore[operator]


def _change(said: dict[str, Any]) -> _Change | None:
    size, address = said.get("Bytes"), said.get("Addr")
    if type(size) is not int or type(address) is not int or not _is_time(said["ts"]):
        return None
    total = said.get("Total Allocated")
    is_usual = 0 < abs(size) <= LARGEST_SIZE and 0 <= address < ADDRESS_LIMIT - abs(size)
    total = total if type(total) is int and 0 <= total <= LARGEST_SIZE else 0
    return _Change(said["ts"], size, address, total) if is_usual else None


def _events(changes: list[_Change]) -> Iterator[Event]:
    """Yield the events of a device. Where the profiler missed a free, it is before what follows."""
    live: dict[int, int] = {}
    known: set[int] = set()
    before_bytes = max(changes[0].total_bytes - changes[0].size_bytes, 0) if changes else 0
    for time, size, address, _ in changes:
        held = live.pop(address, 0)
        if size < 0 and not held and address not in known:  # it was there before
            held = -size
            before_bytes -= held
        if held:
            yield _event("free_completed", address, held, time)
        if size > 0:
            live[address] = size
            yield _event("alloc", address, size, time)
        known.add(address)
    if before_bytes >= ALIGNMENT:
        # Only that it is let go says that it was there; it stays to the end.
        room = min(known) - before_bytes
        address = ALIGNMENT if room > ALIGNMENT else 1 << 62
        yield _event("free_requested", address, before_bytes, changes[-1].time_us)


def _event(action: str, address: int, size: int, time_us: float) -> Event:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": int(time_us),
        "frames": [],
    }
