"""Queries a process from the system: whether it runs, and its command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_LONGEST_LINE: Final = 4096


def is_running(pid: int) -> bool:
    """Whether there is such a process, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OverflowError:
        return False
    except PermissionError:
        return True
    return True


def is_own(pid: int) -> bool:
    """Whether a running process is of this user."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except OSError:
        return False


def command_line(pid: int) -> str:
    """Return the command line of a process, "" if unknown."""
    try:
        with Path(f"/proc/{pid}/cmdline").open("rb") as file:
            words = file.read(_LONGEST_LINE).rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")


def environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process, {} if it may not be read."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)
