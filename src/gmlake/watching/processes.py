"""Queries a process from the system: whether it runs, since when, and its command line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_START_FIELD: Final = 19  # of /proc/PID/stat, counted from behind the name in parentheses
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


def start_ns(pid: int) -> int | None:
    """Return when a process started, by CLOCK_REALTIME; None if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        began_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    return time.time_ns() - int(age_s * 1e9)


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
