"""Reads untrusted files: whole, bounded in size, and without blocking."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
                reason = f"the file has {about.st_size} bytes; at most {most_bytes} are read"
                raise UnreadableError(reason)
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                data = file.readall()
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UnreadableError(reason) from None
    if data is None:
        raise UnreadableError("cannot be read: there is nothing in it now")
    return data
