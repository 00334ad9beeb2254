"""The folder in which a user's processes publish, and the names of the files in it.

It is a folder of this user that nobody else can enter: in XDG_RUNTIME_DIR, or /tmp/gmlake-UID where
there is none. A file is called NAMESPACE-PID-NUMBER.lake. NAMESPACE is that of the process's
number, since containers that share a folder have the same numbers for other processes.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

SHARED_FOLDER: Final = Path("/tmp")  # noqa: S108 (what is made in it is checked)
_OWNER_ONLY: Final = 0o700
_OTHERS: Final = 0o077
_NAME: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,10})-([0-9]{1,10})\.lake", re.ASCII)


class Name(NamedTuple):
    """What the name of a file says: of which process it is, and which lake of it."""

    namespace: int
    pid: int
    number: int

    def __str__(self) -> str:
        """Return the name of the file."""
        return f"{self.namespace}-{self.pid}-{self.number}.lake"

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """Return the parts of a name; None where it is none of ours."""
        match = _NAME.fullmatch(text)
        return None if match is None else cls(*map(int, match.groups()))


def namespace() -> int:
    """Return the space of process numbers that this process lives in, 0 if unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def candidates() -> tuple[Path, ...]:
    """Return the folders that may hold files of this user, the preferred one first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    shared = SHARED_FOLDER / f"gmlake-{os.getuid()}"
    if not runtime or not Path(runtime).is_absolute():
        return (shared,)
    return (Path(runtime) / "gmlake", shared)


def make() -> Path:
    """Return the folder to publish in; OSError, with what is wrong, where there can be none."""
    failed: OSError | None = None
    for folder in candidates():
        try:
            with suppress(FileExistsError):
                folder.mkdir(_OWNER_ONLY)
            os.close(open_folder(folder))
        except OSError as error:
            failed = failed or error
        else:
            return folder
    assert failed is not None  # noqa: S101 (there is a candidate)
    raise failed


def open_folder(folder: Path) -> int:
    """Return a descriptor of a folder that this user alone can enter; else OSError says why."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    why = _distrust(os.fstat(descriptor))
    if why:
        os.close(descriptor)
        raise PermissionError(None, why, str(folder))
    return descriptor


def open_file(folder: int, name: Name) -> int:
    """Return a descriptor of a plain file that this user alone can read or write; else OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(str(name), flags, dir_fd=folder)
    about = os.fstat(descriptor)
    why = _distrust(about) if stat.S_ISREG(about.st_mode) else "it is not a plain file"
    if why:
        os.close(descriptor)
        raise PermissionError(None, why, str(name))
    return descriptor


def _distrust(about: os.stat_result) -> str:
    """Say why something is not this user's alone; "" where it is."""
    if about.st_uid != os.getuid():
        return "it belongs to another user"
    if about.st_mode & _OTHERS:
        return f"other users may use it: its mode is {stat.S_IMODE(about.st_mode):o}"
    return ""
