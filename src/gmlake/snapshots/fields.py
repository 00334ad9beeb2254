"""Takes values out of untrusted snapshot entries: type and range are checked, or one line says."""

from __future__ import annotations

from typing import Final, TypeAlias

from gmlake.errors import TraceError
from gmlake.trace.layout import LARGEST_SIZE

Entry: TypeAlias = dict[object, object]

ADDRESS_LIMIT: Final = 1 << 64
_STREAM_LOW: Final = -(1 << 63)
TIME_LIMIT: Final = (1 << 64) // 1000
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
        reason = f"{what} is {show(value)}, not a dict"
        raise TraceError(reason, event=event)
    return value


def list_of(value: object, what: str) -> list[object]:
    """Return `value` as a list if it is a list or a tuple."""
    if type(value) is tuple:
        return list(value)
    if type(value) is not list:
        reason = f"{what} is {show(value)}, not a list"
        raise TraceError(reason)
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
    """Return entry[key] as an int with low <= value < high; `default` where it is missing."""
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


def address(entry: Entry, key: str, what: str, event: int | None = None) -> int:
    """Return a device address: 0 to 2^64 - 1."""
    return integer(entry, key, what, low=0, high=ADDRESS_LIMIT, event=event)


def size(entry: Entry, key: str, what: str, event: int | None = None) -> int:
    """Return a size in bytes: 0 to 2^48."""
    return integer(entry, key, what, low=0, high=LARGEST_SIZE + 1, event=event)


def extent(
    entry: Entry, keys: tuple[str, str], what: str, event: int | None = None
) -> tuple[int, int]:
    """Return address and size of a range that ends below 2^64."""
    begin, size_bytes = address(entry, keys[0], what, event), size(entry, keys[1], what, event)
    if begin + size_bytes >= ADDRESS_LIMIT:
        reason = f"{what} reaches beyond the last address, 2^64 - 1"
        raise TraceError(reason, event=event)
    return begin, size_bytes


def stream(entry: Entry, what: str, event: int | None = None) -> int:
    """Return a stream handle as 64 bits without sign; 0, the default stream, where missing."""
    value = integer(
        entry, "stream", what, low=_STREAM_LOW, high=ADDRESS_LIMIT, event=event, default=0
    )
    return value % ADDRESS_LIMIT


def time_ns(entry: Entry, what: str, event: int | None = None) -> int:
    """Return the time in ns; 0 where missing, as in old files."""
    return 1000 * integer(entry, "time_us", what, low=0, high=TIME_LIMIT, event=event, default=0)
