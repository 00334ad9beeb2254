"""The folder in which a user's processes publish, and the names of the files in it.

No other user can enter the folder. It is in XDG_RUNTIME_DIR, or else /tmp/gmlake-UID. A file is
named NAMESPACE-PID-NUMBER.lake. NAMESPACE is the PID namespace, since containers that share a
folder use the same PIDs for different processes.
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
    """The parts of a file's name: its process, and which of the process's lakes."""

    namespace: int
    pid: int
    number: int

    def __str__(self) -> str:
        return f"{self.namespace}-{self.pid}-{self.number}.lake"

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """Return the parts of a name; None if it is not such a name."""
        match = _NAME.fullmatch(text)
        return None if match is None else cls(*map(int, match.groups()))


def namespace() -> int:
    """Return the PID namespace of this process, 0 if unknown."""
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
    """Return the folder to publish in. Raises OSError, with the reason, if there can be none."""
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
