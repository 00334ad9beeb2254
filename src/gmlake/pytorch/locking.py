"""Locks of the process, which are free in a child of fork()."""

from __future__ import annotations

import os
import threading
from threading import RLock
from typing import Final


def process_lock() -> RLock:
    """Return a reentrant lock that lasts as long as the process.

    In a child, its holder may be a thread that only the parent has. `with` acquires and releases it
    in C, so no interrupt comes in between.
    """
    made = threading.RLock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001
    return made


lock: Final = process_lock()
"""Guards the begin and end of sessions, and changes of pools."""
