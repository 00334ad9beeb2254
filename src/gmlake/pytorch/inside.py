"""Regions that a thread enters: what it allocates inside comes from the lakes of the region."""

from __future__ import annotations

from contextlib import ContextDecorator

from gmlake import _core
from gmlake.pytorch.session import is_enabled, is_passed_by, why_off


class Inside(_core.Inside, ContextDecorator):
    """Lets the thread that enters it be served by the lakes of a region, until it leaves.

    The core knows who is inside: an exit, on whatever thread, ends one entry and leaves the others
    as they are, and what nobody holds any more is left, too.
    """

    def __init__(self, title: str, *, everywhere: bool = False) -> None:
        """Describe the entry; entering begins it.

        title: what an error calls it. everywhere: whether it holds for all threads that are inside
        of nothing themselves, too.
        """
        self._title = title
        self.is_everywhere = everywhere

    def region(self) -> tuple[int, bool, bool]:
        """Return what the core enters: number, takes_graphs, is_exclusive. Raises RuntimeError."""
        if not is_enabled():
            advice = why_off() or "call gmlake.enable() first, or start it with `gmlake run`"
            raise RuntimeError(f"{self._title}: gmlake does not serve this process; {advice}")
        if is_passed_by():
            raise RuntimeError(
                f'{self._title}: inside gmlake.enabled("caching") PyTorch\'s own allocator '
                "serves, which has no regions; enter it outside"
            )
        return self._region()

    def _region(self) -> tuple[int, bool, bool]:
        raise NotImplementedError
