"""Locks of the process, which a child of fork() finds free."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threading import RLock


def process_lock() -> RLock:
    """Return a lock that its holder may take again, for as long as the process lasts.

    In a child its holder may be a thread that only the parent has. Taking and giving it back in a
    `with` is no code of Python, so no interrupt comes between.
    """
    made = threading.RLock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001
    return made


lock: Final = process_lock()
"""Under which sessions begin and end, and pools come and go."""
