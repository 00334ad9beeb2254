"""Small hostile files cost little memory: the peak of a process of its own that reads each."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.trace import REQUEST, Trace, binary
from gmtraces import file_of, meta, section
from recording import BASE, alloc, free, snapshot

if TYPE_CHECKING:
    from pathlib import Path
FILE_BYTES = 8 << 20


def filled(piece: bytes, head: bytes = b"\x80\x04", tail: bytes = b"") -> bytes:
    return head + piece * (FILE_BYTES // len(piece)) + tail


TEXTS = b"".join(
    b"\x8c" + bytes([len(text)]) + text + b"\x94"
    for text in (b"action", b"alloc", b"addr", b"size", b"stream", b"time_us")
)
EVENTS = b"\x80\x04" + TEXTS + b"}\x8c\x0ddevice_traces]]("
EVENT = b"}(h\0h\1h\2K\0h\3K\0h\4K\0h\5K\0"
"""The smallest that becomes a row, and what stands before the first; more keys may follow."""


def events(more: bytes) -> bytes:
    """A file of events, each with the keys of `more`, which is complete."""
    return filled(EVENT + more + b"u", EVENTS, b"eas.")


def test_rows_of_all_tables_count_together() -> None:
    rows = {"requests": 1, "start_segments": binary.MAX_ROWS}
    columns = [section(b"REQ" + bytes([n]), 1, bytes(4 if n > 4 else 8)) for n in range(7)]
    with pytest.raises(gmlake.TraceError, match="start_segments is not a whole number from 0 to"):
        binary.decode(file_of(meta(rows=rows), *columns))


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    trace = Trace(np.zeros(0, REQUEST), labels=("x" * binary.MAX_META_BYTES,))
    with pytest.raises(gmlake.TraceError, match="labels and settings of more than"):
        trace.save(tmp_path / "x")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_recording_is_far_from_the_limits(protocol: int, tmp_path: Path) -> None:
    """The smallest events there are: no frames, short addresses."""
    events = [act(BASE, 1) for _ in range(50_000) for act in (alloc, free)]
    data = snapshot(events)
    path = tmp_path / "many"
    path.write_bytes(pickle.dumps(data, protocol))
    assert len(gmlake.load(path).devices[0].events) == len(events)
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
    assert len(gmlake.load(path).devices[0].events) == len(events)
