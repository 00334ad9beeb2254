"""Opens a trace file, whatever its format: gmlake's own, or a PyTorch snapshot."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gmlake import _core
from gmlake.errors import TraceError
from gmlake.file_bytes import UnreadableError, contents
from gmlake.snapshots.entries import EventTable
from gmlake.snapshots.profiled import recording_of
from gmlake.snapshots.wrappings import RECORD, unwrapped
from gmlake.trace.binary import MAGIC, decode

MAX_FILE_BYTES: Final = 1 << 32
MAX_PARTS: Final = 1 << 26
"""Most parts in one file, however large; some 16 million recorded events in a pickle, where these
become rows, and half as many where they do not.

A part is what takes up to 80 bytes of memory: a list, a tuple, an empty dict, a value that a pickle
stores. A dict that is not empty is four of them.
"""

BYTES_PER_PART: Final = 5
"""A recorded pickle has 6 and more; memory stays below 24 times the file."""

_FREE_PARTS: Final = 1 << 16
_JSON_STARTS = (b"{", b"[")
_JSON_BYTES_PER_CONTAINER = 16  # those of a recorded snapshot take some 55
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_STARTS = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[", b"\0\0\xfe\xff")
_PICKLE_START = b"\x80"  # from protocol 2 on


def load_document(path: str | Path) -> tuple[object, int]:
    """Return the raw content of a trace file, and its size in bytes without a wrapping.

    A Trace if it is in gmlake's own format, else plain data: dict, list, tuple, str, int,
    float, bool and None, and EventTable for the events of a device in a pickle. Raises TraceError
    with the file's name for anything unreadable.
    """
    try:
        with _enough_memory():
            data = unwrapped(_contents(Path(path)))
        return _recording_in(_document(data)), len(data)
    except TraceError as error:
        raise TraceError(error.reason, event=error.event, path=str(path)) from None


def _contents(path: Path) -> bytes:
    try:
        data = contents(path, MAX_FILE_BYTES)
    except UnreadableError as error:
        raise TraceError(str(error)) from None
    if not data:
        raise TraceError("the file is empty")
    return data


def _document(data: bytes) -> object:
    with _enough_memory(), without_collection():
        if data.startswith(MAGIC):
            return decode(data)
        _check_encoding(data)
        if data[:64].lstrip().startswith(_JSON_STARTS):
            return _read_json(data)
        if data.startswith(_PICKLE_START):
            return read_recording(data)
    raise TraceError(
        "not a memory snapshot: neither JSON, a gmlake trace, nor a pickle of protocols 2 to 5"
    )


def _recording_in(document: object) -> object:
    """Return the recording in a dict of one, as {"rank0": snapshot}; else the document."""
    if type(document) is list and document and type(document[0]) is list:
        raise TraceError(
            "a memory timeline of torch.profiler, which has sizes over time but neither addresses "
            f"nor call paths: {RECORD}"
        )
    if type(document) is not dict or _is_recording(document):
        return document
    held = [str(name) for name, value in document.items() if _is_recording(value)]
    if len(held) > 1:
        shown = ", ".join(name[:20] for name in held[:3]) + (", ..." if len(held) > 3 else "")  # noqa: PLR2004
        raise TraceError(f"holds {len(held)} recordings ({shown}): write each into its own file")
    if held:
        return next(value for value in document.values() if _is_recording(value))
    if "traceEvents" in document:
        return recording_of(document)
    return document


def _is_recording(value: object) -> bool:
    return type(value) is dict and ("segments" in value or "device_traces" in value)


@contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise TraceError("needs more memory than this machine has") from None


@contextmanager
def without_collection() -> Iterator[None]:
    """Turn off the cyclic garbage collector for millions of new dicts without cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_recording(data: bytes) -> object:
    """Read a pickle like read_pickle(), with tables in place of lists of events."""
    try:
        found = _core.read_pickled_events(data, most_parts(len(data)))
    except ValueError as error:
        raise TraceError(str(error)) from None
    if found is None:
        return read_pickle(data)
    document, tables = found
    for place, rows, shared in tables:
        document["device_traces"][place] = EventTable(rows, shared)
    return document


def read_pickle(data: bytes) -> object:
    """Return the plain data that a pickle of protocol 2 to 5 describes; nothing in it is run.

    Raises TraceError for anything but dict (with text or small integer keys), list, tuple, str,
    int (of 64 bits), float, bool and None.
    """
    try:
        return _core.read_plain_pickle(data, most_parts(len(data)))
    except ValueError as error:
        raise TraceError(str(error)) from None


def most_parts(file_bytes: int) -> int:
    """Return how many parts a pickle of that size may have."""
    return min(_FREE_PARTS + file_bytes // BYTES_PER_PART, MAX_PARTS)


def _check_encoding(data: bytes) -> None:
    if data.startswith(_UTF8_MARK):
        raise TraceError("begins with a byte order mark; save the JSON as UTF-8 without one")
    if data.startswith(_UTF16_STARTS):
        raise TraceError("is text in UTF-16 or UTF-32; save the JSON as UTF-8")


def _read_json(data: bytes) -> object:
    containers = data.count(b"[") + data.count(b"{")
    most = min(_FREE_PARTS + len(data) // _JSON_BYTES_PER_CONTAINER, MAX_PARTS)
    if containers > most:
        raise TraceError(
            f"refused: {containers} lists and dicts, where a file of this size holds {most}"
        )
    try:
        return json.loads(data)
    except RecursionError:
        reason = "not a memory snapshot: the JSON is nested too deeply"
    except ValueError as error:
        reason = f"not valid JSON: {str(error)[:120]}"
    raise TraceError(reason)
