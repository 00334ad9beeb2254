"""What lasts from an entry to an exit, where either may be broken off.

An interrupt (Ctrl-C) may come at any instant, also between the last line of an entry and the block
behind it, or at the first line of an exit, and then nobody ends what began. So what is open holds
its owner weakly: one whose owner is gone is over, and so is one whose exit was broken off. Whoever
comes next ends it.

What a program names in `with ... as name` lives on behind the block. So the owner is what the
`with` itself holds, and `name` is another object.
"""

from __future__ import annotations

import weakref
from typing import Any


class Opening:
    """What one entry began, and its exit ends."""

    def __init__(self) -> None:
        self._owner: weakref.ref[object] | None = None
        self.is_ended = False

    def belongs_to(self, owner: object) -> None:
        """Last no longer than this object."""
        self._owner = weakref.ref(owner)

    @property
    def owner(self) -> Any:  # noqa: ANN401 (whatever it belongs to; None: gone)
        return None if self._owner is None else self._owner()

    @property
    def is_over(self) -> bool:
        """Whether nobody will end it any more."""
        return self.is_ended or self.owner is None
