"""Recordings as people pass them on are read; what is not one gets a line that says what it is."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.errors import TraceError
from gmlake.snapshots import wrappings
from recording import BASE, MIB, alloc, block, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path


def recording() -> dict[str, Any]:
    return snapshot(
        [alloc(BASE, 2 * MIB, time_us=1)],
        [segment(BASE, 2 * MIB, [block(BASE, 2 * MIB, requested=2 * MIB)])],
    )


def zipped(data: bytes, name: str = "recording/data.pkl") -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(name, data)
        archive.writestr("recording/version", "3\n")
    return held.getvalue()


def page(data: bytes) -> bytes:
    """Return a page as PyTorch's viewer has it."""
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(data).decode()}])
    return (
        '\n<!DOCTYPE html>\n<html>\n<body>\n<script type="module">\n'
        f'import {{add_local_files}} from "x"\nconst local_files = {files}\n'
        'add_local_files(local_files, "Active Memory Timeline")\n</script>\n</body>\n'
    ).encode()


def memory(time: float, size: int, address: int, **more: int) -> dict[str, Any]:
    """Return an event of torch.profiler with profile_memory=True. more: total, device, kind."""
    said = {"Bytes": size, "Addr": address, "Device Id": more.get("device", 0)}
    said |= {"Device Type": more.get("kind", 1), "Total Allocated": more.get("total", 0)}
    return {"ph": "i", "s": "t", "name": "[memory]", "ts": time, "args": said}


def test_a_trace_of_the_profiler_is_read(tmp_path: Path) -> None:
    step = {"ph": "X", "name": "ProfilerStep#4", "ts": 5.0, "dur": 5.5, "args": {}}
    events = [
        step,
        memory(12.5, -MIB, BASE, total=9 * MIB - 512),  # of another thread, so not in order
        memory(3.2, MIB, BASE, total=10 * MIB),
        memory(4.7, -512, 1 << 20, total=10 * MIB - 512),
        memory(20.5, 2 * MIB, BASE, total=11 * MIB - 512),
        memory(21.5, 3 * MIB, BASE, total=12 * MIB - 512),  # its free was not seen
        memory(22.5, -3 * MIB, BASE, total=9 * MIB - 512),
        memory(23.5, -3 * MIB, BASE, total=9 * MIB - 512),  # and this allocation
        memory(2.0, MIB, 4096, total=MIB, device=1),
        {"name": "[memory]", "args": {"Bytes": "x"}},
        {**step, "name": "forward", "dur": 9.5},  # no step
    ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    first, second = gmlake.load(file)
    assert first.lives.start_bytes == 9 * MIB  # most of it is in no event
    in_order = sorted(events[1:8], key=lambda one: float(one["ts"]))
    told = [one["args"]["Total Allocated"] for one in in_order]
    live = first.lives.live_bytes[first.lives.change != 0].tolist()
    assert live == [*told[:4], 9 * MIB - 512, *told[4:6]]
    assert first.marks == ((10_000, "ProfilerStep#4"),)
    assert (second.device, second.peak.live_bytes) == (1, MIB)


REFUSED: dict[str, tuple[bytes, str]] = {
    "gzip, cut off": (gzip.compress(b"x" * 99)[:20], "the gzip file is cut off"),
    "gzip, damaged": (b"\x1f\x8b" + b"\7" * 40, "the gzip file is damaged"),
    "gzip of nothing": (gzip.compress(b""), "the gzip file holds nothing"),
    "gzip in gzip": (gzip.compress(gzip.compress(b"x")), "not a memory snapshot"),
    "bomb": (gzip.compress(bytes(1 << 27)), "unpacks to more than"),
    "zip, cut off": (zipped(b"x")[:60], "the zip archive is damaged"),
    "another zip": (zipped(b"x", "a.txt"), r"not one that torch.save\(\) wrote"),
    "another page": (b"<html><body>hello</body></html>", "an HTML page without a recording"),
    "page, cut off": (page(b"x" * 99)[:200], "whose recording cannot be read"),
    "page of two": (
        b'<html>local_files = [{"base64": ""}, {"base64": ""}]\n',
        "whose recording cannot be read",
    ),
    "profiler": (b'{"traceEvents": []}', r"a trace of torch.profiler without \[memory\] events"),
    "profiler of the host": (
        json.dumps({"traceEvents": [memory(1, 512, 64, device=-1, kind=0)]}).encode(),
        "of the host only: record with",
    ),
    "timeline": (gzip.compress(b"[[-1, 1, 524288, 0]]"), "a memory timeline of torch.profiler"),
    "timeline as a page": (
        b"<html><body><img src='data:image/png;base64,AA'></body></html>",
        "a page with a picture, as of torch.profiler's memory timeline: record with",
    ),
    "ranks": (
        json.dumps({f"rank{i}": recording() for i in range(5)}).encode(),
        r"holds 5 recordings \(rank0, rank1, rank2, ...\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_recording_is_named(tmp_path: Path, name: str) -> None:
    data, reason = REFUSED[name]
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(TraceError, match=reason):
        gmlake.load(file)


def test_an_entry_that_claims_to_be_huge_is_not_unpacked(tmp_path: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("recording/data.pkl", bytes(1 << 24))
    (tmp_path / "file").write_bytes(held.getvalue())
    with pytest.raises(TraceError, match=r"not one that torch\.save"):
        gmlake.load(tmp_path / "file")


def test_gzip_unpacks_to_a_multiple_of_the_file_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrappings, "MOST_UNPACKED", 1000)
    assert len(wrappings.unwrapped(gzip.compress(bytes(1000)))) == 1000
    with pytest.raises(TraceError, match="more than 1000 bytes"):
        wrappings.unwrapped(gzip.compress(bytes(1001)))
