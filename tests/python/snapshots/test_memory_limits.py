"""Small hostile files cost little memory: the peak of a process of its own that reads each."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.snapshots.opening import BYTES_PER_PART, MAX_PARTS, load_traces
from gmlake.trace import REQUEST, binary
from gmtraces import file_of, meta, section
from recording import BASE, alloc, free, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READ = """
import sys, gmlake
try:
    gmlake.load_traces(sys.argv[1])
except gmlake.TraceError as error:
    print(error.reason)
else:
    print("read")
# Not getrusage: its peak begins with that of the process that forked this one.
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(int(line.split()[1]) * 1024)
"""
FILE_BYTES = 8 << 20
GIB = 1 << 30
# What Python and numpy take, about 40 MB, and so many times the file.
SOME, LITTLE = 224 << 20, 128 << 20


def many_rows(rows: int) -> bytes:
    """A valid file with as many allocations of nothing as are asked for."""
    table = np.zeros(rows, REQUEST)
    table["id"] = np.arange(rows)
    table["kind"] = gmlake.trace.Kind.ALLOC
    sections = []
    for number, name in enumerate(REQUEST.names or ()):
        raw = binary._shuffle(table[name])  # noqa: SLF001 (the encoder refuses so many)
        stored = zlib.compress(raw, 1)
        head = binary._SECTION.pack(  # noqa: SLF001 (as above)
            b"REQ" + bytes([number]), zlib.crc32(stored), rows, len(stored)
        )
        sections.append(head + stored)
    return file_of(meta(rows={"requests": rows}), *sections)


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


HOSTILE: dict[str, tuple[Callable[[], bytes], str, int]] = {
    "rows": (lambda: many_rows(1 << 23), "read", GIB),
    "too_many_rows": (lambda: many_rows((1 << 23) + 1), "requests is not a whole", GIB // 2),
    "lists": (lambda: filled(b"]"), "than a file of this size holds", SOME),
    "tuples": (lambda: filled(b"N\x85"), "than a file of this size holds", SOME),
    "full_dicts": (lambda: filled(b"}K\0Ns"), "than a file of this size holds", SOME),
    "marks": (lambda: filled(b"("), "open marks", SOME),
    "memo": (lambda: filled(b"\x94", b"\x80\x04N"), "than a file of this size holds", SOME),
    "copies": (lambda: filled(b"h\0", b"\x80\x04N\x94"), "cut off", SOME),
    "strings": (lambda: filled(b"\x8c\x02ab"), "cut off", SOME),
    "events": (lambda: events(b""), "live already", SOME),
    "events_of_their_own": (lambda: events(b"h\1]Na"), "live already", SOME),
    "events_with_texts": (lambda: events(b"h\1X\x08\0\0\0abcdefgh"), "live already", SOME),
    "events_named_often": (
        lambda: filled(b"h\6", EVENTS + EVENT.replace(b"}", b"}\x94") + b"u", b"eas."),
        "live already",
        SOME,
    ),
    "no_events": (lambda: filled(b"N", EVENTS + EVENT + b"u", b"eas."), "not a dict", SOME),
    "events_stored": (lambda: events(b"h\1]\x94"), "than a file of this size holds", SOME),
    "events_one_by_one": (
        lambda: filled(EVENT + b"ua", EVENTS[:-1], b"as."),
        "live already",
        SOME,
    ),
    "json_lists": (lambda: filled(b"[],", b"[", b"0]"), "lists and dicts", LITTLE),
    "json_dicts": (lambda: filled(b'{"a":1},', b"[", b"0]"), "lists and dicts", LITTLE),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_peak(kind: str, tmp_path: Path) -> None:
    make, reason, most_bytes = HOSTILE[kind]
    path = tmp_path / "hostile"
    path.write_bytes(make())
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    outcome, peak = done.stdout.splitlines()
    assert reason in outcome
    assert int(peak) < most_bytes


def test_rows_of_all_tables_count_together() -> None:
    rows = {"requests": 1, "start_segments": binary.MAX_ROWS}
    columns = [section(b"REQ" + bytes([n]), 1, bytes(4 if n > 4 else 8)) for n in range(7)]
    with pytest.raises(gmlake.TraceError, match="start_segments is not a whole number from 0 to"):
        binary.decode(file_of(meta(rows=rows), *columns))


def test_rows_are_compared_with_the_stored_bytes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1 << 20
    columns = [section(b"REQ" + bytes([n]), rows, b"") for n in range(7)]
    monkeypatch.setattr(np, "zeros", None)
    with pytest.raises(gmlake.TraceError, match="damaged"):
        binary.decode(file_of(meta(rows={"requests": rows}), *columns))


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    trace = gmlake.Trace(np.zeros(0, REQUEST), labels=("x" * binary.MAX_META_BYTES,))
    with pytest.raises(gmlake.TraceError, match="labels and settings of more than"):
        trace.save(tmp_path / "x")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_recording_is_far_from_the_limits(protocol: int, tmp_path: Path) -> None:
    """The smallest events there are: no frames, short addresses."""
    events = [act(BASE, 1) for _ in range(50_000) for act in (alloc, free)]
    data = snapshot(events)
    path = tmp_path / "many"
    path.write_bytes(pickle.dumps(data, protocol))
    assert len(load_traces(path)[0].requests) == len(events)
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
    assert len(load_traces(path)[0].requests) == len(events)


def test_eight_million_events_fit() -> None:
    parts_of_an_event = 7  # a dict, its list of frames, both in the memo, and some to spare
    assert 8_000_000 * parts_of_an_event <= MAX_PARTS
    assert BYTES_PER_PART * parts_of_an_event < 40
