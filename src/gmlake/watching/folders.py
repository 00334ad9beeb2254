"""The folder in which a user's processes publish, and the names of the files in it.

It is a folder of this user that nobody else can enter: in XDG_RUNTIME_DIR, or /tmp/gmlake-UID where
there is none. A file is called NAMESPACE-PID-NUMBER.lake. NAMESPACE is that of the process's
number, since containers that share a folder have the same numbers for other processes.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gmlake import owned

SHARED_FOLDER: Final = Path("/tmp")  # noqa: S108 (what is made in it is checked)
_NAME: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,10})-([0-9]{1,10})\.lake", re.ASCII)


class Name(NamedTuple):
    """What the name of a file says: of which process it is, and which lake of it."""

    namespace: int
    pid: int
    number: int

    def __str__(self) -> str:
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
                folder.mkdir(0o700)
            os.close(owned.open_folder(folder))
        except OSError as error:
            failed = failed or error
        else:
            return folder
    assert failed is not None  # noqa: S101 (there is a candidate)
    raise failed
