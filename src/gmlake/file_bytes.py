"""Reads untrusted files: whole, bounded in size, and without blocking."""

from __future__ import annotations

import os
import re
import stat
import zlib
from pathlib import Path
from typing import Final

GZIP: Final = b"\x1f\x8b"
"""The first bytes of a gzip file."""

_STEP_BYTES = 1 << 12
_NOT_ZERO = re.compile(rb"[^\0]")


class UnreadableError(Exception):
    """Says in one line why a file cannot be read."""


def contents(path: Path, most_bytes: int) -> bytes:
    """Return a regular file's bytes. Raises UnreadableError.

    Never blocks: neither on a pipe without a writer, nor on a kernel file without data.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise UnreadableError("cannot be read: not a regular file")
            if about.st_size > most_bytes:
                raise UnreadableError(
                    f"the file has {about.st_size} bytes; at most {most_bytes} are read"
                )
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                data = file.readall()
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if data is None:
        raise UnreadableError("cannot be read: there is nothing in it now")
    return data


def unpack_gzip(data: bytes, most_bytes: int) -> bytes:
    """Unpack gzip of one or more members. Raises UnreadableError."""
    parts: list[bytes] = []
    total = 0
    packed = memoryview(data)
    while packed:
        stream = zlib.decompressobj(31)
        while not stream.eof:
            # In small steps: all data behind the end of a member is copied.
            step, packed = packed[:_STEP_BYTES], packed[_STEP_BYTES:]
            if not step:
                raise UnreadableError("the gzip file is cut off")
            try:
                parts.append(stream.decompress(step, most_bytes - total + 1))
            except zlib.error as error:
                raise UnreadableError(f"the gzip file is damaged: {error}") from None
            total += len(parts[-1])
            if total > most_bytes:
                raise UnreadableError(f"unpacks to more than {most_bytes} bytes")
        packed = _without_zeros(data, len(data) - len(packed) - len(stream.unused_data))
    return b"".join(parts)


def _without_zeros(data: bytes, begin: int) -> memoryview:
    """Return the data after the zeros that may lie between and behind members."""
    found = _NOT_ZERO.search(data, begin)
    return memoryview(data)[found.start() if found else len(data) :]
