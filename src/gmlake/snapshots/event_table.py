"""The events of a device in a pickle, in a tenth of the memory that dicts take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from gmlake.trace.layout import REQUEST, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gmlake.trace.layout import Records

_ROWS_AT_ONCE: Final = 1 << 12


class EventTable:
    """What is read as a list of events: a row for each, with what many of them share kept once.

    rows: of REQUEST. `id` is the place in `shared`, time_ns what the file gives as time_us, and
    `reserved` 1 where the event is all that `id` names, 0 where it has the row's numbers, too.
    """

    def __init__(self, rows: bytearray, shared: list[Any]) -> None:
        """Take what the core's read_pickled_events() found."""
        self.rows: Records = np.frombuffer(rows, REQUEST)
        self.shared = shared

    def __len__(self) -> int:
        """Count the events."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        """Yield each event as the file has it."""
        for first in range(0, len(self), _ROWS_AT_ONCE):
            rows = self.rows[first : first + _ROWS_AT_ONCE].tolist()
            for number, size, address, time, stream, _, is_whole in rows:
                event = self.shared[number]
                if not is_whole:
                    numbers = {"addr": address, "size": size, "stream": stream, "time_us": time}
                    event = {**event, **numbers}
                yield event

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """Which of `shared` are whole events."""
        result = np.zeros(len(self.shared), np.bool_)
        result[self.rows["id"][self.rows["reserved"] == 1]] = True
        return result


Events: TypeAlias = "list[Any] | tuple[Any, ...] | EventTable"
"""The events of a device, as a file has them."""


def match_blocks(requests: Records) -> tuple[Records, Records] | None:
    """Find which allocation each event of a block speaks of, by its address, and set its id.

    Allocations are numbered 0, 1, ..., blocks from before the events -1, -2, ..., in the order in
    which events name them. Return the rows that first name each of the latter, and all addresses,
    sorted. None, with nothing set, where an event contradicts those before it.
    """
    kind = requests["kind"]
    is_alloc = kind == Kind.ALLOC
    rows = np.flatnonzero(is_alloc | (kind == Kind.FREE) | (kind == Kind.FREE_REQUESTED))
    addresses = requests["address"][rows]
    order = np.argsort(addresses, kind="stable")
    rows, addresses = rows[order], addresses[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = addresses[1:] != addresses[:-1]
    begins = is_alloc[rows]
    has_ended = np.ones(len(rows), np.bool_)
    has_ended[1:] = kind[rows[:-1]] == Kind.FREE
    if not (is_first | (has_ended == begins)).all():
        return None
    before = np.sort(rows[is_first & ~begins])
    starts = begins | is_first
    of_starts = rows[starts]
    numbers = np.where(
        begins[starts],
        (np.cumsum(is_alloc) - 1)[of_starts],
        -1 - np.searchsorted(before, of_starts),
    )
    requests["id"][rows] = numbers[np.cumsum(starts) - 1]
    return before, addresses
