r"""gmlake's own trace format: columns, each delta-coded, byte-shuffled, compressed, checksummed.

All numbers are little endian.

    offset  size  what
    0       8     magic "GMLTRACE"
    8       4     version: 1, or 2 with private pools
    12      4     number of sections
    16      ...   the sections, one after another:
                      4   name: "META", or a table's tag and a column number ("REQ\0")
                      4   CRC-32 of the stored bytes
                      8   items: rows of a column, bytes of META
                      8   stored bytes
                      ... the stored bytes, a zlib stream
    end     12    "GEND" and the CRC-32 and low 32 bits of the length of everything before

META is JSON: device, settings, labels, is_expandable, the rows of each table, and from version 2
on pools, a list of pairs of numbers. A column of integers is stored as the differences between
neighbours (modulo 2^width) with equal bytes of all rows side by side: first all lowest bytes, then
all second ones. Section names are never reused for something else; a reader refuses a version above
its own.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.trace.layout import (
    MAX_POOLS,
    RANGE,
    REQUEST,
    SPAN,
    START_BLOCK,
    Records,
)
from gmlake.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC: Final = b"GMLTRACE"
VERSION: Final = 2
_WITHOUT_POOLS: Final = 1
MAX_ROWS: Final = 1 << 23
"""Most rows of all tables together, so that a small hostile file costs less than 1 GiB."""

MAX_META_BYTES: Final = 1 << 22
"""Most bytes of META, nearly all of them labels."""

_HEAD = struct.Struct("<8sII")
_SECTION = struct.Struct("<4sIQQ")
_TAIL = struct.Struct("<4sII")
_TAIL_MAGIC = b"GEND"
_LEVEL = 6  # the highest, 9, takes 25 times as long on random numbers, and saves 3 %
_BEST_RATIO = 1100  # zlib reaches 1032 to 1 at most

_OF_SPANS: Final = ("address", "size_bytes", "stream", "pool_owner", "pool_number", "is_small")
_OF_RANGES: Final = ("address", "size_bytes", "requested_bytes", "is_used")
_TABLES: Final = (
    (b"REQ", "requests", "requests", REQUEST, REQUEST.names or ()),
    (b"SSG", "start_segments", "start_segments", SPAN, _OF_SPANS),
    (b"SBL", "start_blocks", "start_blocks", START_BLOCK, START_BLOCK.names or ()),
    (b"FSG", "final_segments", "spans", SPAN, _OF_SPANS),
    (b"FBL", "final_blocks", "ranges", RANGE, _OF_RANGES),
)
"""Tag, key of the number of rows, attribute, type and stored columns of each table."""


def encode(trace: Trace) -> bytes:
    """Return the file's bytes. Raises TraceError for more than MAX_ROWS rows or MAX_META_BYTES."""
    rows = {key: len(getattr(trace, attribute)) for _, key, attribute, _, _ in _TABLES}
    if sum(rows.values()) > MAX_ROWS:
        raise TraceError(f"more than {MAX_ROWS} events, segments and blocks; split the trace")
    meta = {
        "device": trace.device,
        "settings": trace.settings,
        "labels": list(trace.labels),
        "is_expandable": trace.is_expandable,
        "rows": rows,
    }
    if trace.pools:
        meta["pools"] = trace.pools
    text = json.dumps(meta, separators=(",", ":")).encode()
    if len(text) > MAX_META_BYTES:
        raise TraceError(
            f"labels and settings of more than {MAX_META_BYTES} bytes; split the trace"
        )
    sections = [_section(b"META", text, len(text))]
    for tag, _, attribute, _, columns in _TABLES:
        table: Records = getattr(trace, attribute)
        for number, column in enumerate(columns):
            if len(table):
                name = tag + bytes([number])
                sections.append(_section(name, _shuffle(table[column]), len(table)))
    version = VERSION if trace.pools else _WITHOUT_POOLS
    body = _HEAD.pack(MAGIC, version, len(sections)) + b"".join(sections)
    return body + _TAIL.pack(_TAIL_MAGIC, zlib.crc32(body), len(body) & 0xFFFFFFFF)


def _section(name: bytes, raw: bytes, items: int) -> bytes:
    stored = zlib.compress(raw, _LEVEL)
    return _SECTION.pack(name, zlib.crc32(stored), items, len(stored)) + stored


def _shuffle(column: Records) -> bytes:
    values = column.astype(_integer_of(column.dtype))
    deltas = np.diff(values, prepend=values.dtype.type(0))
    octets: NDArray[np.uint8] = deltas.view(np.uint8).reshape(len(values), -1).T
    return bytes(octets.tobytes())


def _unshuffle(raw: bytes, rows: int, dtype: np.dtype[Any]) -> Records:
    width = dtype.itemsize
    octets = np.frombuffer(raw, np.uint8).reshape(width, rows).T
    deltas = np.ascontiguousarray(octets).view(_integer_of(dtype)).reshape(rows)
    values = np.cumsum(deltas, dtype=deltas.dtype)
    return values != 0 if dtype.kind == "b" else values


def _integer_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<u{dtype.itemsize}")


def decode(data: bytes, name: str = "") -> Trace:
    """Read the file's bytes; never trusts a length or a count, even if the checksum is right.

    Raises TraceError for a file that is damaged, cut off, of a later version or contradictory.
    """
    sections = dict(_sections(data))
    meta = _read_meta(sections)
    tables: dict[str, Any] = {}
    left = MAX_ROWS
    for tag, key, attribute, dtype, columns in _TABLES:
        rows = _count(meta["rows"], key, left)
        left -= rows
        tables[attribute] = _table(sections, tag, rows, dtype, columns)
    trace = Trace(
        **tables,
        device=_count(meta, "device", 1 << 16),
        settings=meta["settings"],
        labels=tuple(meta["labels"]),
        pools=_read_pools(meta.get("pools", [])),
        is_expandable=meta["is_expandable"],
        name=name,
    )
    trace.check()
    return trace


def _sections(data: bytes) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
    """Yield name, items and stored bytes of each section, having checked the whole file."""
    end = len(data) - _TAIL.size
    if end < _HEAD.size:
        raise TraceError(_CUT_OFF)
    _, version, count = _HEAD.unpack_from(data)
    if version > VERSION:
        raise TraceError(
            f"written by a later gmlake (format {version}, this one reads {VERSION}): upgrade"
        )
    magic, checksum, length = _TAIL.unpack_from(data, end)
    if magic != _TAIL_MAGIC or length != end & 0xFFFFFFFF:
        raise TraceError(_CUT_OFF)
    if checksum != zlib.crc32(memoryview(data)[:end]):
        raise TraceError(_DAMAGED)
    position = _HEAD.size
    for _ in range(count):
        if end - position < _SECTION.size:
            raise TraceError(_DAMAGED)
        name, checksum, items, stored_bytes = _SECTION.unpack_from(data, position)
        position += _SECTION.size
        if stored_bytes > end - position:
            raise TraceError(_DAMAGED)
        stored = data[position : position + stored_bytes]
        position += stored_bytes
        if zlib.crc32(stored) != checksum:
            raise TraceError(_DAMAGED)
        yield name, (items, stored)


def _inflate(stored: bytes, expected_bytes: int) -> bytes:
    """Decompress to exactly the expected length, asking for no more memory than that."""
    _check_can_hold(stored, expected_bytes)
    machine = zlib.decompressobj()
    try:
        raw = machine.decompress(stored, expected_bytes + 1)
    except zlib.error:
        raise TraceError(_DAMAGED) from None
    if len(raw) != expected_bytes or not machine.eof:
        raise TraceError(_DAMAGED)
    return raw


def _check_can_hold(stored: bytes, expected_bytes: int) -> None:
    if expected_bytes > (len(stored) + 1) * _BEST_RATIO:
        raise TraceError(_DAMAGED)


def _table(
    sections: dict[bytes, tuple[int, bytes]],
    tag: bytes,
    rows: int,
    dtype: np.dtype[Any],
    names: tuple[str, ...],
) -> Records:
    """Read columns of a table, having checked that each can be as long as is claimed."""
    columns = {}
    for number, column in enumerate(names):
        name = tag + bytes([number])
        items, stored = sections.get(name, (0, b""))
        if items != rows:
            raise TraceError(f"a column is missing or has the wrong length ({name!r})")
        _check_can_hold(stored, rows * dtype[column].itemsize)
        columns[column] = stored
    table = np.zeros(rows, dtype)
    for column, stored in columns.items():
        if rows:
            kind = dtype[column]
            table[column] = _unshuffle(_inflate(stored, rows * kind.itemsize), rows, kind)
    return table


def _read_meta(sections: dict[bytes, tuple[int, bytes]]) -> dict[str, Any]:
    items, stored = sections.get(b"META", (0, b""))
    if not 0 < items <= MAX_META_BYTES:
        raise TraceError(_DAMAGED)
    try:
        meta = json.loads(_inflate(stored, items))
    except (ValueError, RecursionError):
        raise TraceError(_DAMAGED) from None
    wanted = {"device": int, "settings": dict, "labels": list, "is_expandable": bool, "rows": dict}
    if not isinstance(meta, dict) or any(type(meta.get(k)) is not t for k, t in wanted.items()):
        raise TraceError(_DAMAGED)
    if not all(isinstance(label, str) for label in meta["labels"]):
        raise TraceError(_DAMAGED)
    return meta


def _read_pools(raw: object) -> tuple[tuple[int, int], ...]:
    if type(raw) is not list or len(raw) > MAX_POOLS:
        raise TraceError(_DAMAGED)
    pools = []
    for pool in raw:
        if type(pool) is not list or [type(part) for part in pool] != [int, int]:
            raise TraceError(_DAMAGED)
        if not all(0 <= part < 1 << 64 for part in pool):
            raise TraceError(_DAMAGED)
        pools.append((pool[0], pool[1]))
    return tuple(pools)


def _count(values: dict[str, Any], key: str, most: int) -> int:
    value = values.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise TraceError(f"{key} is not a whole number from 0 to {most}")
    return value


_CUT_OFF = "not a whole gmlake trace: the file was cut off"
_DAMAGED = "not a valid gmlake trace: the file is damaged"
