"""Memory snapshots and histories in PyTorch's format, where gmlake is PyTorch's allocator.

Every byte of physical memory is drawn once: what a stitched view holds at the view's addresses,
everything else where it lies at home.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake import _core
from gmlake.allocator_conf import VARIABLES, read_allocator_conf
from gmlake.pytorch import device as cuda
from gmlake.pytorch import lakes
from gmlake.trace.layout import REQUEST, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gmlake._core import Region

MOST_EVENTS: Final = 1 << 20  # kept per device where PyTorch would keep any number; 48 MiB
_ACTIONS: Final = {
    Kind.ALLOC: "alloc",
    Kind.FREE: "free_completed",
    Kind.FREE_REQUESTED: "free_requested",
    Kind.OOM: "oom",
}
_KNOWN_ACTIONS: Final = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
    *("segment_map", "segment_unmap", "snapshot", "oom"),
)
_NS_PER_US: Final = 1000
_DEFAULT_POOL: Final = (0, 0)


@dataclass
class _Recording:
    """What _record_memory_history() chose."""

    max_events: int = 0  # 0: nothing is recorded
    skipped: frozenset[str] = frozenset()


_lock = threading.Lock()  # guards _recording
_recording = _Recording()


def is_recording() -> bool:
    """Whether events are kept."""
    return _recording.max_events > 0


def record(max_events: int, skipped: Sequence[str] = (), *, is_clear: bool = False) -> None:
    """Keep the last events of every device from now on; 0 stops and forgets.

    Raises RuntimeError for a name in `skipped` that no action has.
    """
    for action in skipped:
        if action not in _KNOWN_ACTIONS:
            raise RuntimeError(f"Unknown TraceEntry action: {action}")
    with _lock:
        max_events = min(max_events, MOST_EVENTS)
        if is_clear or max_events != _recording.max_events:
            _core.torch_keep_history(max_events)
        _recording.max_events = max_events
        _recording.skipped = frozenset(skipped)


def snapshot(*, has_events: bool = True) -> dict[str, Any]:
    """Return what torch._C._cuda_memorySnapshot() would, for every device."""
    count = max((cuda.device_count() or 0, *(number + 1 for number in lakes.devices())))
    traces: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    segments: list[dict[str, Any]] = []
    for number in lakes.devices():
        lake = lakes.find(number)
        if lake is not None:
            if has_events and is_recording():
                # The events first: what happens meanwhile shows in the final state only.
                traces[number] = _events(lake.history()[0])
            segments += _segments(number, lake.regions())
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": _settings(),
        "external_annotations": [],
    }


# ---- segments


def _segments(number: int, regions: list[Region]) -> list[dict[str, Any]]:
    pieces = [piece for region in regions for piece in _pieces(region)]
    return sorted(
        (_segment(number, region, ranges) for region, ranges in pieces),
        key=lambda segment: segment["address"],
    )


_Range = tuple[int, int, int, bool]  # address, size, requested size, is used; in bytes


def _pieces(region: Region) -> Iterator[tuple[Region, list[_Range]]]:
    """Yield the contiguous parts of a region that are drawn there."""
    ranges = region["ranges"]
    if region["is_view"]:
        if any(is_used for _, _, _, is_used in ranges):
            yield region, ranges
        return
    piece: list[_Range] = []
    for part in ranges:
        _, _, requested_bytes, is_used = part
        if not is_used or requested_bytes:
            piece.append(part)
        elif piece:  # lent to a view
            yield region, piece
            piece = []
    if piece:
        yield region, piece


def _segment(number: int, region: Region, ranges: list[_Range]) -> dict[str, Any]:
    used = [part for part in ranges if part[3]]
    return {
        "device": number,
        "address": ranges[0][0],
        "total_size": sum(size for _, size, _, _ in ranges),
        "allocated_size": sum(size for _, size, _, _ in used),
        "active_size": sum(size for _, size, _, _ in used),
        "requested_size": sum(requested for _, _, requested, _ in used),
        "stream": region["stream"],
        "segment_type": "small" if region["is_small"] else "large",
        "segment_pool_id": _DEFAULT_POOL,
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": address,
                "size": size,
                "requested_size": requested,
                "state": "active_allocated" if is_used else "inactive",
                "frames": [],
            }
            for address, size, requested, is_used in ranges
        ],
    }


# ---- events


def _events(history: bytes) -> list[dict[str, Any]]:
    entries = []
    for _, size, address, time_ns, stream, kind, _ in np.frombuffer(history, REQUEST).tolist():
        action = _ACTIONS.get(kind)
        if action is None or action in _recording.skipped:
            continue
        where = {"device_free": address} if action == "oom" else {"addr": address}
        entries.append(
            {
                "action": action,
                **where,
                "size": size,
                "stream": stream,
                "time_us": time_ns // _NS_PER_US,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": [],
            }
        )
    return entries


# ---- settings


def _settings() -> dict[str, Any]:
    conf = read_allocator_conf(os.environ)
    divisions = conf.knobs.get("roundup_power2_divisions", 1)
    return {
        "PYTORCH_CUDA_ALLOC_CONF": next(
            (os.environ[name] for name in VARIABLES if os.environ.get(name)), ""
        ),
        "max_split_size": conf.knobs.get("max_split_size", -1),
        "garbage_collection_threshold": conf.knobs.get("garbage_collection_percent", 0) / 100,
        "expandable_segments": False,
        "roundup_power2_divisions": {
            str(1 << power): conf.knobs.get(f"roundup_power2_divisions.{1 << power}", divisions)
            for power in range(16)
        },
        "gmlake": True,
    }
