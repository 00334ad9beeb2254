"""The lock under which regions begin and end, and pools come and go."""

from __future__ import annotations

import threading
from typing import Final


class _Lock:
    """A lock that its holder may take again, and that a child process can have anew."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget who holds it: in a child that may be a thread that only the parent has."""
        self._inner = threading.RLock()

    def __enter__(self) -> None:
        self._inner.acquire()

    def __exit__(self, *_: object) -> None:
        self._inner.release()


lock: Final = _Lock()
