"""Folders and files that only this user may change, and files that appear whole.

Files that are run, read back or written under a guessable name go through here. A folder is checked
once it is open, and files in it are opened relative to it, so it cannot be swapped in between.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_OTHERS_WRITE: Final = 0o022
_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_folder(folder: Path) -> int:
    """Return a descriptor of a folder that only this user may write to; else OSError says why."""
    descriptor = os.open(folder, _OPEN | os.O_RDONLY | os.O_DIRECTORY)
    return _judged(descriptor, folder)


def open_file(folder: int, name: str) -> int:
    """Return a descriptor, to read, of a plain file that only this user may write to.

    Else OSError says why.
    """
    descriptor = os.open(name, _OPEN | os.O_RDONLY, dir_fd=folder)
    return _judged(descriptor, Path(name), is_file=True)


def write_file(folder: int, name: str, data: bytes, mode: int) -> None:
    """Write a file into a folder atomically, replacing a file of its name. Raises OSError."""
    hidden = f".{name[:80]}.{secrets.token_hex(8)}"
    flags = _OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(hidden, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(hidden, dir_fd=folder)
        raise


def write_path(path: Path, data: bytes) -> None:
    """Write atomically to any path, with the umask's mode. Replaces a link. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_file(folder, path.name, data, 0o666 & ~_umask())
    finally:
        os.close(folder)


def _judged(descriptor: int, path: Path, *, is_file: bool = False) -> int:
    about = os.fstat(descriptor)
    why = ""
    if is_file and not stat.S_ISREG(about.st_mode):
        why = "it is not a plain file"
    elif about.st_uid != os.getuid():
        why = "it belongs to another user"
    elif about.st_mode & _OTHERS_WRITE:
        why = f"other users may use it: its mode is {stat.S_IMODE(about.st_mode):o}"
    if why:
        os.close(descriptor)
        raise PermissionError(None, why, str(path))
    return descriptor


def _umask() -> int:
    """Return the process's umask without changing it, which other threads would see."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").split("\n"):
        if line.startswith("Umask:"):
            return int(line.partition(":")[2], 8)
    return 0o077
