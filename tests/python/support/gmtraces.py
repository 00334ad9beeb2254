"""Files of traces put together by hand, whatever they say."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any


def reseal(body: bytes) -> bytes:
    """Give changed contents a right checksum, as an attacker would."""
    return body + struct.pack("<4sII", b"GEND", zlib.crc32(body), len(body) & 0xFFFFFFFF)


def section(name: bytes, items: int, raw: bytes) -> bytes:
    stored = zlib.compress(raw, 9)
    return struct.pack("<4sIQQ", name, zlib.crc32(stored), items, len(stored)) + stored


def file_of(*sections: bytes, version: int = 1) -> bytes:
    return reseal(struct.pack("<8sII", b"GMLTRACE", version, len(sections)) + b"".join(sections))


def meta(**changes: Any) -> bytes:
    rows = dict.fromkeys(
        ("requests", "start_segments", "start_blocks", "final_segments", "final_blocks"), 0
    )
    fields = {
        "device": 0,
        "settings": {},
        "labels": [],
        "is_expandable": False,
        "rows": rows | changes.pop("rows", {}),
    }
    text = json.dumps(fields | changes).encode()
    return section(b"META", len(text), text)
