"""Finds the private pool (of CUDA graphs or of a MemPool) of each event of a snapshot.

From version 2.12 on, PyTorch writes it into each event. Where gmlake served an earlier one, an
annotation of the recording has the pools of all events. Otherwise they follow from the final
segments: memory in those of a pool belongs to the pool from their allocation on. What a pool had
released by then cannot be recognized, and counts as memory of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.snapshots import entries
from gmlake.snapshots.entries import Entry
from gmlake.trace.layout import MAX_POOLS, Kind, Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNNAMED: Final = (1 << 32) - 1
"""In `pool` of a request: the event does not tell."""

NO_POOL: Final = (0, 0)

_NOTE: Final = "gmlake_pools"
"""In an external annotation: the count, owner and number of the pool for each run of events."""

_NUMBERS_OF_RUN: Final = 3
_MOST_DIGITS: Final = 20  # of 64 bits

OF_POOLS: Final = (Kind.ALLOC, Kind.OOM, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
"""The kinds of requests that belong to a pool, or to none."""


def pool_id(entry: Entry, key: str, what: str, event: int | None = None) -> tuple[int, int]:
    """Return PyTorch's id of the pool that an entry names; (0, 0) if it names none."""
    pool = entry.get(key, NO_POOL)
    if (type(pool) is not tuple and type(pool) is not list) or len(pool) != 2:  # noqa: PLR2004
        raise TraceError(f"{what}: {key!r} is not a pair of numbers", event=event)
    owner, number = (entries.address({key: part}, key, what, event) for part in pool)
    return owner, number


class PoolNumbers:
    """The pools of a trace, numbered from 1 in the order in which they are named."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {NO_POOL: 0}

    @property
    def pools(self) -> tuple[tuple[int, int], ...]:
        """Their ids, without the default's."""
        return tuple(self._numbers)[1:]

    def number(self, pool: tuple[int, int]) -> int:
        """Return the number of a pool. Raises TraceError for the first one too many."""
        if pool not in self._numbers and len(self._numbers) > MAX_POOLS:
            raise TraceError(f"refused: it names more than {MAX_POOLS} private pools")
        return self._numbers.setdefault(pool, len(self._numbers))

    def of_event(self, entry: Entry, what: str, event: int | None = None) -> int:
        """Return the number of the pool that an event names; UNNAMED if it names none."""
        if "pool_id" not in entry:
            return UNNAMED
        return self.number(pool_id(entry, "pool_id", what, event))

    def of_note(self, note: Entry | None, events: int) -> Records | None:
        """Return the numbers of the pools of a device's events, from the annotation about them.

        Events added behind the annotated ones are UNNAMED. None without an annotation, or if it is
        about more events: some were cut off since, and which is unknown.
        """
        if note is None:
            return None
        runs = _read_runs(note.get(_NOTE))
        counts = [count for count, _, _ in runs]
        if sum(counts) > events:
            return None
        numbers = np.full(events, UNNAMED, np.uint32)
        told = [self.number((owner, number)) for _, owner, number in runs]
        numbers[: sum(counts)] = np.repeat(np.array(told, np.uint32), counts)
        return numbers


def is_note(annotation: Entry) -> bool:
    """Whether an external annotation has the pools of a device's events."""
    return _NOTE in annotation


def _read_runs(text: object) -> list[tuple[int, int, int]]:
    words = text.split() if type(text) is str else []
    if (
        not words
        or len(words) % _NUMBERS_OF_RUN
        or not all(word.isascii() and word.isdigit() for word in words)
        or max(map(len, words)) > _MOST_DIGITS
    ):
        raise TraceError(
            f"{_NOTE!r} of an external annotation is not three numbers for each run of events"
        )
    numbers = [int(word) for word in words]
    if 0 in numbers[::_NUMBERS_OF_RUN] or max(numbers) >= entries.ADDRESS_LIMIT:
        raise TraceError(f"{_NOTE!r} of an external annotation has a number out of range")
    runs = iter(numbers)
    return list(zip(runs, runs, runs, strict=True))


def name_pools(
    requests: Records, segments: Records, numbers: Records, *, is_expandable: bool
) -> None:
    """Set the pool of each request whose event does not name it.

    segments: at the end, by address; numbers: the number of the pool of each.
    """
    unnamed = np.flatnonzero(requests["pool"] == UNNAMED)
    requests["pool"][unnamed] = 0
    if not numbers.any() or not len(unnamed):
        return
    lanes = _lanes_of(segments) if is_expandable else np.arange(len(segments))
    births = (_births_of_lanes if is_expandable else _births)(requests, segments, lanes)
    address = requests["address"][unnamed]
    place = _places(segments, address)
    is_inside = _is_inside(address, place, segments)
    if is_expandable:
        is_inside |= _is_between(place, lanes)
    is_inside &= np.isin(requests["kind"][unnamed], OF_POOLS[:1] + OF_POOLS[2:])
    is_inside &= unnamed >= births[lanes[place]]
    requests["pool"][unnamed[is_inside]] = numbers[place[is_inside]]


def _places(segments: Records, address: Records) -> NDArray[np.int64]:
    """Return the last segment that begins at or below each address; -1: none does."""
    return np.searchsorted(segments["address"], address, side="right").astype(np.int64) - 1


def _is_inside(address: Records, place: NDArray[np.int64], segments: Records) -> NDArray[np.bool_]:
    ends = segments["address"] + segments["size_bytes"]
    return np.asarray((place >= 0) & (address < ends[place]))


def _is_between(place: NDArray[np.int64], lanes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which addresses lie in parts unmapped by now: mapped ones of one lane around them."""
    behind = np.minimum(place + 1, len(lanes) - 1)
    return np.asarray((place >= 0) & (behind > place) & (lanes[place] == lanes[behind]))


def _lanes_of(segments: Records) -> NDArray[np.int64]:
    """Number the streams and pools: each has an expandable segment, of several mapped parts."""
    columns = ["stream", "pool_owner", "pool_number", "is_small"]
    lanes: NDArray[np.int64] = np.unique(segments[columns], return_inverse=True)[1]
    return lanes


def _births(requests: Records, segments: Records, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row that allocated each segment; 0 for one from before."""
    result = np.zeros(len(lanes), np.int64)
    rows = np.flatnonzero(requests["kind"] == Kind.SEGMENT_ALLOC)
    address = requests["address"][rows]
    place = _places(segments, address)
    is_first = (place >= 0) & (segments["address"][place] == address)
    np.maximum.at(result, place[is_first], rows[is_first])
    return result


def _births_of_lanes(
    requests: Records, segments: Records, lanes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the row from which part of each lane was always mapped."""
    held = np.bincount(lanes, segments["size_bytes"].astype(np.float64)).tolist()
    births = np.zeros(len(held), np.int64)
    rows = np.flatnonzero(np.isin(requests["kind"], (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)))[::-1]
    address = requests["address"][rows]
    place = _places(segments, address)
    of_lane = _is_inside(address, place, segments) | _is_between(place, lanes)
    rows, place = rows[of_lane], place[of_lane]
    sizes = requests["size_bytes"][rows].astype(np.float64)
    changes = np.where(requests["kind"][rows] == Kind.SEGMENT_FREE, sizes, -sizes)
    steps = zip(rows.tolist(), lanes[place].tolist(), changes.tolist(), strict=True)
    for row, lane, change in steps:
        if held[lane] > 0:
            held[lane] += change
            if held[lane] <= 0:
                births[lane] = row
    return births
