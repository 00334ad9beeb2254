"""Memory snapshots and histories in PyTorch's format, where gmlake is PyTorch's allocator.

Every byte of physical memory is drawn once: what a stitched view holds at the view's addresses,
everything else where it lies at home.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gmlake import _core
from gmlake.allocator_conf import VARIABLES, read_allocator_conf
from gmlake.pytorch import compat, lakes
from gmlake.pytorch import device as cuda
from gmlake.pytorch.locking import process_lock
from gmlake.snapshots.capture import capture, places_by_number
from gmlake.snapshots.writing import Frames, document_of, events_of, segments_of

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_EVENTS: Final = 1 << 20  # kept per device where PyTorch would keep any number; 56 MiB
_KNOWN_ACTIONS: Final = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
    *("segment_map", "segment_unmap", "snapshot", "oom"),
)


_EXTRA: Final = {"compile_context": "N/A", "user_metadata": ""} | (
    {"pool_id": (0, 0)} if compat.is_since(13) else {}
)
"""What PyTorch's events have, and gmlake knows nothing of."""


@dataclass
class _Recording:
    """What _record_memory_history() chose."""

    max_events: int = 0  # 0: nothing is recorded
    skipped: frozenset[str] = frozenset()
    is_lent: bool = False  # the events are those of a gmlake.record() until it ends


_lock = process_lock()  # guards _recording
_recording = _Recording()


def is_recording() -> bool:
    """Whether events are kept."""
    return _recording.max_events > 0


def record(max_events: int, skipped: Sequence[str] = (), *, is_clear: bool = False) -> None:
    """Keep the last events of every device from now on; 0 stops and forgets.

    While gmlake.record() keeps them, that goes on; what is chosen here applies as soon as it ends.
    Raises RuntimeError for a name in `skipped` that no action has.
    """
    for action in skipped:
        if action not in _KNOWN_ACTIONS:
            raise RuntimeError(f"Unknown TraceEntry action: {action}")
    with _lock:
        max_events = min(max_events, MOST_EVENTS)
        is_changed = is_clear or max_events != _recording.max_events
        if is_changed and not _recording.is_lent:
            _core.torch_keep_history(max_events)
        _recording.max_events = max_events
        _recording.skipped = frozenset(skipped)


def lend(max_events: int) -> None:
    """Keep the last events for gmlake.record() from now on. Raises MemoryError."""
    with _lock:
        _core.torch_keep_history(max_events)
        _recording.is_lent = True


def take_back() -> None:
    """Keep what _record_memory_history() chose; gmlake.record() has ended."""
    with _lock:
        _recording.is_lent = False
        _core.torch_keep_history(_recording.max_events)


def forget_loan() -> None:
    """Know of no gmlake.record(), in a forked child; its parent's lakes are left alone."""
    _recording.is_lent = False


def snapshot(*, has_events: bool = True) -> dict[str, Any]:
    """Return what torch._C._cuda_memorySnapshot() would, for every device."""
    count = max((cuda.device_count() or 0, *(number + 1 for number in lakes.devices())))
    traces: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    segments: list[dict[str, Any]] = []
    found = ((lakes.find(number), number) for number in lakes.devices())
    devices = [capture(lake, number) for lake, number in found if lake is not None]
    frames = Frames(places_by_number())
    for seen in devices:
        if has_events and is_recording():
            traces[seen.device] = [
                entry
                for entry in events_of(seen, frames, _EXTRA)[0]
                if entry["action"] not in _recording.skipped
            ]
        segments += segments_of(seen, frames)
    for _, number, lake in lakes.of_regions():
        segments += segments_of(capture(lake, number), frames)
    host: dict[str, Any] = {"host_segments": [], "host_traces": []} if compat.is_since(14) else {}
    return document_of(segments, traces, _settings()) | host


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
