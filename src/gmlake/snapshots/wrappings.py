"""Recordings as people pass them on: in gzip, by torch.save(), or in a page of PyTorch's viewer."""

from __future__ import annotations

import base64
import binascii
import io
import json
import zipfile
from typing import Final

from gmlake.errors import TraceError
from gmlake.file_bytes import GZIP, UnreadableError, unpack_gzip

RECORD: Final = (
    "record with torch.cuda.memory._record_memory_history() and _dump_snapshot(), or with "
    "`gmlake run --record FILE SCRIPT`"
)
"""What to do with a file that has no recording."""

MOST_UNPACKED: Final = 1 << 32
"""Most bytes that gzip unpacks to, and no more than UNPACKED_BY_PACKED times the file."""

UNPACKED_BY_PACKED: Final = 200
"""Recordings of many equal call paths are packed to a fiftieth of their size."""

_ZIP = b"PK\3\4"
_LEAST_UNPACKED = 1 << 20
_PAGE_STARTS = (b"<!doctype html", b"<html")
_FILES = b"local_files = "
_PICTURE = b"data:image/png;base64,"


def unwrapped(data: bytes) -> bytes:
    """Return what is inside a wrapping, or the data as it is. Raises TraceError."""
    if data.startswith(GZIP):
        return _in_gzip(data)
    if data.startswith(_ZIP):
        return _in_zip(data)
    if data[:64].lstrip().lower().startswith(_PAGE_STARTS):
        return _in_page(data)
    return data


def _in_gzip(data: bytes) -> bytes:
    most = min(MOST_UNPACKED, max(UNPACKED_BY_PACKED * len(data), _LEAST_UNPACKED))
    try:
        found = unpack_gzip(data, most)
    except UnreadableError as error:
        raise TraceError(str(error)) from None
    if not found:
        raise TraceError("the gzip file holds nothing")
    return found


def _in_zip(data: bytes) -> bytes:
    """Return the pickle of torch.save(), which stores it as it is."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith("/data.pkl") and entry.file_size <= len(data):
                    return archive.read(entry)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, OSError, NotImplementedError,
            RuntimeError, EOFError) as error:  # fmt: skip
        raise TraceError(f"the zip archive is damaged: {str(error)[:120]}") from None
    raise TraceError("a zip archive, and not one that torch.save() wrote: unpack it first")


def _in_page(data: bytes) -> bytes:
    """Return the recording in a page of torch.cuda._memory_viz (trace_plot, segment_plot)."""
    at = data.find(_FILES)
    if at < 0:
        reason = "an HTML page without a recording in it: pass the recording itself"
        if _PICTURE in data:
            reason = f"a page with a picture, as of torch.profiler's memory timeline: {RECORD}"
        raise TraceError(reason)
    line = data[at + len(_FILES) :].split(b"\n", 1)[0].strip().rstrip(b";")
    try:
        (file,) = json.loads(line)
        return base64.b64decode(file["base64"], validate=True)
    except (ValueError, TypeError, KeyError, RecursionError, binascii.Error):
        raise TraceError(
            "a page of PyTorch's viewer whose recording cannot be read: pass the recording"
        ) from None
