"""Regions that a thread enters: its allocations inside come from the lakes of the region."""

from __future__ import annotations

from contextlib import ContextDecorator

from gmlake import _core
from gmlake.pytorch.session import is_enabled, is_passed_by, why_off


def require_served(title: str) -> None:
    """Raise RuntimeError where gmlake does not serve this process. title: who needs it."""
    if not is_enabled():
        advice = why_off() or "call gmlake.enable() first, or start it with `gmlake run`"
        raise RuntimeError(f"{title}: gmlake does not serve this process; {advice}")
    if is_passed_by():
        raise RuntimeError(
            f'{title}: inside gmlake.enabled("caching") PyTorch\'s own allocator serves, which '
            "has no such thing; enter it outside"
        )


class Inside(_core.Inside, ContextDecorator):
    """Serves the thread that enters it from the lakes of a region, until it leaves.

    The core keeps the entries: an exit, on any thread, ends one entry and no other. Entries whose
    object was garbage-collected end, too.
    """

    def __init__(self, title: str, *, everywhere: bool = False) -> None:
        """Describe the entry; entering begins it.

        title: its name in errors. everywhere: whether it also applies to all threads that have
        entered no region themselves.
        """
        self._title = title
        self.is_everywhere = everywhere

    def region(self) -> tuple[int, bool, bool]:
        """Return the core's region: number, takes_graphs, is_exclusive. Raises RuntimeError."""
        require_served(self._title)
        return self._region()

    def _region(self) -> tuple[int, bool, bool]:
        raise NotImplementedError
