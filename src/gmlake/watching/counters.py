"""The counters that processes of this user publish: who does, and what they say when asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gmlake import _core
from gmlake.errors import Error
from gmlake.watching.neighbours import name_of

_SOCKETS: Final = Path("/proc/net/unix")


@dataclass(frozen=True)
class Counters:
    """The state of the lakes of a process on one device; names as in Lake.stats().

    Sizes are in bytes, times in ns of CLOCK_REALTIME. start_ns: since when it is published.
    peak_live_bytes, peak_reserved_bytes: the sums of the peaks of all lakes. largest_free_bytes:
    the largest that a lake has; 0: unknown.
    """

    pid: int
    device: int
    start_ns: int
    live_blocks: int
    live_bytes: int
    requested_bytes: int
    reserved_bytes: int
    host_bytes: int
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
    states: dict[str, int]

    @property
    def fragmentation(self) -> float | None:
        """1 - largest obtainable / free; 0 if nothing is free, None if it is not known."""
        free = self.reserved_bytes + self.host_bytes - self.live_bytes
        if free <= 0:
            return 0.0
        return max(0.0, 1 - self.largest_free_bytes / free) if self.largest_free_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Return every counter, and the values derived from them."""
        return {**asdict(self), "fragmentation": self.fragmentation}


def publishers() -> list[int]:
    """Return the processes that publish, by number."""
    begin = "@" + _core.published_name(name_of("top"))
    try:
        words = _SOCKETS.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
    numbers = {word.removeprefix(begin) for word in words if word.startswith(begin)}
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())


def read(pid: int) -> list[Counters]:
    """Ask a process, for half a second at most; by device.

    Raises Error if it publishes nothing, or does not answer.
    """
    try:
        found = _core.read_counters(name_of("top"), pid)
    except ValueError as error:
        raise Error(str(error)) from None
    return sorted((Counters(pid=pid, **each) for each in found), key=lambda each: each.device)
