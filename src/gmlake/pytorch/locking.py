"""Locks of the process, and states that begin with an entry and end with an exit.

Locks are free in a child of fork(). An interrupt (Ctrl-C) may come at any instant, even between the
last line of an entry and the block behind it, or at the first line of an exit, which then ends
nothing. So an opening references its owner weakly: it is over once its owner is collected, or if
its exit was interrupted. The next entry or exit then ends it.

The object that a program names in `with ... as name` outlives the block. So the owner is the object
that the `with` itself holds, and `name` is another one.
"""

from __future__ import annotations

import os
import threading
import weakref
from threading import RLock
from typing import Any, Final


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


class Opening:
    """State that begins with one entry, and ends with its exit."""

    def __init__(self) -> None:
        self._owner: weakref.ref[object] | None = None
        self.is_ended = False

    def belongs_to(self, owner: object) -> None:
        """End this opening, at the latest, with this object."""
        self._owner = weakref.ref(owner)

    @property
    def owner(self) -> Any:  # noqa: ANN401 (whatever it belongs to; None: gone)
        return None if self._owner is None else self._owner()

    @property
    def is_over(self) -> bool:
        """Whether its exit began, or its owner is gone."""
        return self.is_ended or self.owner is None
