"""The format of a file of published counters (gml_published of gmlake.h), and a reading of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from gmlake.errors import Error

_MAGIC: Final = b"GMLCOUNT"
_VERSION: Final = 1
_STATES: Final = ("exact", "split", "stitch", "grow", "oom", "plan")

_HEAD: Final = struct.Struct("<8sIIQ")  # magic, version, size of the file, sequence
_BODY: Final = struct.Struct("<IiQQ15Q6Q2Q")
_NAMES: Final = (
    *("pid", "device", "start_ns", "time_ns"),
    *("live_blocks", "live_bytes", "requested_bytes", "reserved_bytes"),
    *("peak_live_bytes", "peak_reserved_bytes", "largest_free_bytes"),
    *("allocations", "frees", "driver_calls", "driver_time_ns"),
    *("views", "view_bytes", "cross_stream_waits", "borrowed_bytes"),
    *(*_STATES, "looked_ns", "looked_free_bytes"),
)
_FILE_BYTES: Final = _HEAD.size + _BODY.size
MOST_BYTES: Final = 4096
"""The most bytes of a file of any version."""
SEQUENCE_AT: Final = 16
SEQUENCE: Final = struct.Struct("<Q")


class CountersError(Error):
    """A file of counters is of another version, damaged, or half written."""


@dataclass(frozen=True)
class Counters:
    """The state of one lake of a process after its last request; names as in Lake.stats().

    Sizes are in bytes, times in ns of CLOCK_REALTIME. start_ns: since when it is published.
    time_ns: of the last request, to some milliseconds. largest_free_bytes (0: unknown), views, the
    waits and loans of streams, and looked_free_bytes (reserved and not live then) are as of
    looked_ns, at most a second before time_ns.
    """

    pid: int
    device: int
    start_ns: int
    time_ns: int
    live_blocks: int
    live_bytes: int
    requested_bytes: int
    reserved_bytes: int
    peak_live_bytes: int
    peak_reserved_bytes: int
    largest_free_bytes: int
    allocations: int
    frees: int
    driver_calls: int
    driver_time_ns: int
    views: int
    view_bytes: int
    cross_stream_waits: int
    borrowed_bytes: int
    looked_ns: int
    looked_free_bytes: int
    states: dict[str, int]

    @property
    def fragmentation(self) -> float | None:
        """1 - largest obtainable / free, at the last look; 0 if nothing is free.

        None if it is not known, as between the first requests and the first look after them.
        """
        if self.reserved_bytes <= self.live_bytes:
            return 0.0
        if self.looked_free_bytes == 0 or self.largest_free_bytes == 0:
            return None
        return max(0.0, 1 - self.largest_free_bytes / self.looked_free_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return every counter, and the values derived from them."""
        return {**vars(self), "fragmentation": self.fragmentation}


def decode(data: bytes) -> Counters:
    """Read the bytes of a file. Raises CountersError, with the reason."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise CountersError("it holds no counters of gmlake")
    _, version, size_bytes, _ = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CountersError(f"it is of version {version}, and this gmlake reads {_VERSION}")
    if len(data) != size_bytes or size_bytes != _FILE_BYTES:
        raise CountersError(f"it is not {_FILE_BYTES} bytes long")
    read: dict[str, Any] = dict(zip(_NAMES, _BODY.unpack_from(data, _HEAD.size), strict=True))
    return Counters(states={name: read.pop(name) for name in _STATES}, **read)
