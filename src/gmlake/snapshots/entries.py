"""Entries of snapshot files: checked values of untrusted dicts, and the events of a device.

Type and range of each value are checked; an error says in one line what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from gmlake.errors import TraceError
from gmlake.trace.layout import LARGEST_SIZE, REQUEST, Kind, Records

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Entry: TypeAlias = dict[object, object]

ADDRESS_LIMIT: Final = 1 << 64
_STREAM_LOW: Final = -(1 << 63)
TIME_LIMIT: Final = (1 << 64) // 1000
MOST_DEVICES: Final = 1 << 10
"""In use in one file: each costs a lake per policy, however little it did."""
_SHOWN_TEXT: Final = 40


def show(value: object) -> str:
    """Describe a value in a few characters, however large, deep or cyclic it is."""
    if type(value) is int and abs(value) < ADDRESS_LIMIT:
        return str(value)
    if type(value) is str:
        return ascii(value[:_SHOWN_TEXT])
    return f"a {type(value).__name__}"


def entry_of(value: object, what: str, event: int | None = None) -> Entry:
    """Return `value` if it is a dict, as every entry of a snapshot must be."""
    if type(value) is not dict:
        raise TraceError(f"{what} is {show(value)}, not a dict", event=event)
    return value


def list_of(value: object, what: str) -> list[object]:
    """Return `value` as a list if it is a list or a tuple."""
    if type(value) is tuple:
        return list(value)
    if type(value) is not list:
        raise TraceError(f"{what} is {show(value)}, not a list")
    return value


def integer(  # noqa: PLR0913 (a range has two ends)
    entry: Entry,
    key: str,
    what: str,
    *,
    low: int,
    high: int,
    event: int | None = None,
    default: int | None = None,
) -> int:
    """Return entry[key] as an int with low <= value < high; `default` if it is missing."""
    value = entry.get(key)
    if type(value) is int and low <= value < high:
        return value
    if value is None and default is not None:
        return default
    if value is None:
        reason = f"{what} has no {key!r}"
    elif type(value) is not int:
        reason = f"{what}: {key!r} is {show(value)}, not a whole number"
    else:
        reason = f"{what}: {key!r} is {show(value)}, outside {low} to {high - 1}"
    raise TraceError(reason, event=event)


Named: TypeAlias = "Callable[[int], tuple[str, int | None]]"
"""What an entry of a list is, for an error, and the event if it is one."""


def integers(  # noqa: PLR0913 (a range has two ends)
    found: Sequence[Any],
    key: str,
    named: Named,
    *,
    low: int = 0,
    high: int,
    default: int | None = None,
) -> Records:
    """Return entry[key] of each, as integer() does, of 64 bits without a sign."""
    values = [entry.get(key) for entry in found]
    if default is not None:
        values = [default if value is None else value for value in values]
    is_whole = {*map(type, values)} <= {int}
    if is_whole and (not values or (min(values) >= low and max(values) < high)):
        return np.array(values if low >= 0 else [one % ADDRESS_LIMIT for one in values], np.uint64)
    for index, entry in enumerate(found):
        what, event = named(index)
        integer(entry, key, what, low=low, high=high, event=event, default=default)
    raise AssertionError("one of them is wrong")


def extents(found: Sequence[Any], keys: tuple[str, str], named: Named) -> tuple[Records, Records]:
    """Return address and size of ranges, each of at most 2^48 bytes, that end below 2^64."""
    begins = integers(found, keys[0], named, high=ADDRESS_LIMIT)
    sizes = integers(found, keys[1], named, high=LARGEST_SIZE + 1)
    is_beyond = begins > np.uint64(ADDRESS_LIMIT - 1) - sizes
    if is_beyond.any():
        index = int(np.argmax(is_beyond))
        what, event = named(index)
        raise TraceError(f"{what} reaches beyond the last address, 2^64 - 1", event=event)
    return begins, sizes


def streams(found: Sequence[Any], named: Named) -> Records:
    """Return the stream handle of each as unsigned 64 bits; 0, the default stream, if missing."""
    return integers(found, "stream", named, low=_STREAM_LOW, high=ADDRESS_LIMIT, default=0)


def times_us(found: Sequence[Any], named: Named) -> Records:
    """Return the time of each in microseconds; 0 if it is missing, as in old files."""
    return integers(found, "time_us", named, high=TIME_LIMIT, default=0)


def address(entry: Entry, key: str, what: str, event: int | None = None) -> int:
    """Return a device address: 0 to 2^64 - 1."""
    return integer(entry, key, what, low=0, high=ADDRESS_LIMIT, event=event)


def time_ns(entry: Entry, what: str, event: int | None = None) -> int:
    """Return the time in ns; 0 if it is missing, as in old files."""
    return 1000 * integer(entry, "time_us", what, low=0, high=TIME_LIMIT, event=event, default=0)


@dataclass
class Visits:
    """Entries that may still be visited: a file cannot honestly hold more than it has bytes."""

    left: int

    def spend(self, entries: int) -> None:
        """Count entries that are about to be visited. Raises TraceError."""
        self.left -= entries
        if self.left < 0:
            raise TraceError(
                "refused: the file names the same entries over and over (more than its bytes)"
            )


# ---- events

SEGMENT_KINDS: Final = {
    "segment_alloc": Kind.SEGMENT_ALLOC,
    "segment_map": Kind.SEGMENT_ALLOC,
    "segment_free": Kind.SEGMENT_FREE,
    "segment_unmap": Kind.SEGMENT_FREE,
}
ADDED: Final = "gmlake_added"
"""A key of segments' events that are not in the recording, but added for the viewer."""

_NOTE: Final = "annotate"

NOT_MEMORY: Final = {"snapshot", "user_defined", "workspace_snapshot", _NOTE}

_ROWS_AT_ONCE: Final = 1 << 12


class EventTable:
    """The events of a device: a row for each, with the parts that many share stored once.

    rows: of REQUEST. `id` is the place in `shared`, time_ns the file's time_us, and `pool` 1 if
    the event is exactly the entry that `id` names, 0 if it has the row's numbers, too.
    """

    def __init__(self, rows: bytearray, shared: list[Any]) -> None:
        """Take the result of the core's read_pickled_events()."""
        self.rows: Records = np.frombuffer(rows, REQUEST)
        self.shared = shared

    @staticmethod
    def of(events: Sequence[Any]) -> EventTable:
        """Return a list of events as a table in which nothing is shared."""
        made = EventTable(bytearray(), list(events))
        made.rows = np.zeros(len(made.shared), REQUEST)
        made.rows["id"] = np.arange(len(made.shared))
        made.rows["pool"] = 1
        return made

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        """Yield each event as in the file."""
        for first in range(0, len(self), _ROWS_AT_ONCE):
            rows = self.rows[first : first + _ROWS_AT_ONCE].tolist()
            for number, size, address, time, stream, _, is_whole in rows:
                event = self.shared[number]
                if not is_whole:
                    numbers = {"addr": address, "size": size, "stream": stream, "time_us": time}
                    event = {**event, **numbers}
                yield event

    def event(self, number: int) -> Any:  # noqa: ANN401 (whatever the file has there)
        """Return an event as in the file."""
        row = self.rows[number]
        entry = self.shared[int(row["id"])]
        if row["pool"]:
            return entry
        names = {"addr": "address", "size": "size_bytes", "stream": "stream", "time_us": "time_ns"}
        return {**entry, **{name: int(row[column]) for name, column in names.items()}}

    def first_of(self, place: int) -> int:
        """Return the first event that has this entry of `shared`."""
        return int(np.argmax(self.rows["id"] == place))


Events: TypeAlias = "list[Any] | tuple[Any, ...] | EventTable"
"""The events of a device as in a file."""


def table_of(events: Events) -> EventTable:
    """Return the events of a device as a table."""
    return events if isinstance(events, EventTable) else EventTable.of(events)


def is_row(entry: Entry) -> bool:
    """Whether an event, whose action is a text, becomes a row of the trace."""
    action = entry["action"]
    return action not in NOT_MEMORY and not (action in SEGMENT_KINDS and entry.get(ADDED) is True)


def notes_of(events: Events) -> list[tuple[int, int, str]]:
    """Return the annotations of a device: the event, the address of the block, and the text."""
    found = []
    for number, entry in _notes(events):
        address, text = entry.get("addr"), entry.get("user_metadata")
        if type(address) is int and 0 <= address < ADDRESS_LIMIT and type(text) is str and text:
            found.append((number, address, text))
    return found


def _notes(events: Events) -> Iterator[tuple[int, Entry]]:
    table = table_of(events)
    is_note = np.array([entry["action"] == _NOTE for entry in table.shared], np.bool_)
    for number in np.flatnonzero(is_note[table.rows["id"]]).tolist():
        yield number, table.event(number)


def are_rows(events: Events) -> NDArray[np.bool_]:
    """Return which events of a device, all of them read, became rows of its trace."""
    table = table_of(events)
    of_shared = np.array([is_row(entry) for entry in table.shared], np.bool_)
    result: NDArray[np.bool_] = of_shared[table.rows["id"]]
    return result


def values_of_rows(events: Events, value: Callable[[Any], object], dtype: DTypeLike) -> Records:
    """Return value(event) for each event of a device that became a row of its trace, in order.

    `value` may look at everything but the four numbers of a row.
    """
    table = table_of(events)
    rows = np.array([is_row(entry) for entry in table.shared], np.bool_)
    values = np.zeros(len(rows), dtype)
    told = [value(table.shared[number]) for number in np.flatnonzero(rows).tolist()]
    values[rows] = np.array(told, dtype)
    chosen = table.rows["id"]
    result: Records = values[chosen if rows.all() else chosen[rows[chosen]]]
    return result
