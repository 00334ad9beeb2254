"""Whether the other threads of this process have done what they had to do."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_LOOKS = 5


def wait_for_other_threads() -> None:
    """Return once each other thread of this process waits for something, at some looks in a row.

    A thread that has work but no processor does not wait, however busy the machine is.
    """
    looks = 0
    while looks < _LOOKS:
        looks = looks + 1 if _others_wait() else 0
        time.sleep(0.02)


def _others_wait() -> bool:
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").iterdir():
        try:
            state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            continue  # it has ended
        if task.name != own and state == "R":
            return False
    return True
