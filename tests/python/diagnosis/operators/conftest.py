"""What these tests share: a block looks through few objects, however many this process has."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def _few_objects() -> Iterator[None]:
    """Hide what is there already: a block begins by asking the collector for every object."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
