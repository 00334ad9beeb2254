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
    "profiler": (b'{"traceEvents": []}', "a profiler's trace"),
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
