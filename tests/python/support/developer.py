"""What only a developer build has: hooks around the drivers of lakes, and what lab/ adds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

HAS_LAB: Final = hasattr(_core, "test_hooks")

needs_lab: Final = pytest.mark.skipif(
    not HAS_LAB, reason="this gmlake is no developer build: `make .venv/.package` makes one"
)


@contextmanager
def hooks(**wanted: Any) -> Iterator[None]:
    """Have lakes that are opened inside wrapped in what `_core.test_hooks()` says, and not others.

    pre: HAS_LAB.
    """
    choose = _core.test_hooks  # type: ignore[attr-defined]
    before = choose(**wanted)
    try:
        yield
    finally:
        choose(**before)
