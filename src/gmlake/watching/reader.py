"""Finds and reads the files that processes of this user publish; nothing in them is trusted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gmlake import owned
from gmlake.watching import folders, processes
from gmlake.watching.counters import (
    MOST_BYTES,
    SEQUENCE,
    SEQUENCE_AT,
    Counters,
    CountersError,
    decode,
)

_PATIENCE_S: Final = 0.5
"""A writer takes some 20 ns, but may lose its processor in the middle."""
_PAUSE_S: Final = 1e-4
_CLOCKS_AGREE_NS: Final = 2_000_000_000


@dataclass(frozen=True)
class Source:
    """The file of one lake of a process."""

    folder: Path
    name: folders.Name

    @property
    def pid(self) -> int:
        """The process that publishes."""
        return self.name.pid


def find() -> list[Source]:
    """Return the files of running processes, by process; remove those of ended ones.

    Skips other containers' processes: whether they run cannot be determined here.
    """
    here = folders.namespace()
    found = []
    for folder in folders.candidates():
        with suppress(OSError), _opened(owned.open_folder(folder)) as descriptor:
            for text in os.listdir(descriptor):  # noqa: PTH208 (a folder that was checked)
                name = folders.Name.parse(text)
                if name is None or name.namespace != here:
                    continue
                if processes.is_running(name.pid):
                    found.append(Source(folder, name))
                else:
                    _remove(descriptor, name)
    return sorted(found, key=lambda source: (source.pid, source.name.number))


def read(source: Source) -> Counters:
    """Read the counters as they are now.

    Raises CountersError if the file holds none, and FileNotFoundError if it is gone, or if its
    process ended and another one got its PID. Takes at most half a second, if a writer was stopped
    in the middle.
    """
    with _opened(owned.open_folder(source.folder)) as folder:
        try:
            with _opened(owned.open_file(folder, str(source.name))) as file:
                counters = decode(_consistent(file))
        except PermissionError as error:
            raise CountersError(error.strerror) from None
        if counters.pid != source.pid:
            raise CountersError(f"it claims to be of process {counters.pid}")
        began_ns = processes.start_ns(source.pid)
        if began_ns is not None and began_ns > counters.start_ns + _CLOCKS_AGREE_NS:
            _remove(folder, source.name)
            raise FileNotFoundError(source.name)
    return counters


def _consistent(file: int) -> bytes:
    """Return the bytes of a file as they were between two writes."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        before = os.pread(file, SEQUENCE.size, SEQUENCE_AT)
        data = os.pread(file, MOST_BYTES, 0)
        if before == os.pread(file, SEQUENCE.size, SEQUENCE_AT) and not _is_written(before):
            return data
        if time.monotonic() > end:
            break
        time.sleep(_PAUSE_S)
    raise CountersError("it was being written at every attempt to read it")


def _is_written(sequence: bytes) -> bool:
    return bool(sequence and sequence[0] & 1)  # the lowest byte comes first


def _remove(folder: int, name: folders.Name) -> None:
    with suppress(OSError):
        os.unlink(str(name), dir_fd=folder)


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
