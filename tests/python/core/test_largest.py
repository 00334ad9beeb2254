"""The largest request that a lake says it could serve from what it holds."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from gmlake import Lake, OutOfMemoryError

MIB = 1 << 20


@pytest.mark.parametrize("policy", ["stitch", "caching", "expandable"])
def test_small_requests_are_served_from_what_is_left_of_a_small_piece(policy: str) -> None:
    with Lake("sim", policy, 2 * MIB) as lake:
        kept = lake.allocate(600 << 10)
        assert lake.stats()["largest_free_bytes"] == MIB
        lake.allocate(MIB)
        left = lake.stats()["largest_free_bytes"]
        assert left == (2 * MIB - (600 << 10)) - MIB
        with pytest.raises(OutOfMemoryError, match="512 B less would have been served"):
            lake.allocate(left + 512)
        lake.allocate(left)
        assert lake.stats()["largest_free_bytes"] == 0
        lake.free(kept)


def test_what_is_said_when_all_is_held_is_served() -> None:
    """Pieces up to 1 MiB behind large blocks serve no small request, which needs a slab."""
    asked = random.Random(5)  # noqa: S311
    told = []
    for _ in range(60):
        with Lake("sim", "stitch", 16 * MIB) as lake:
            held = []
            for _ in range(40):
                with suppress(OutOfMemoryError):
                    held.append(lake.allocate(asked.randint(1, 3 * MIB)))
                if asked.random() < 0.4:
                    lake.free(held.pop(asked.randrange(len(held))))
            with suppress(OutOfMemoryError):  # nothing is kept back for a request of one size
                lake.allocate(64 * MIB)
            told.append(lake.stats()["largest_free_bytes"])
            if lake.stats()["reserved_bytes"] == 16 * MIB and told[-1]:
                lake.allocate(told[-1])
    assert any(0 < size <= MIB for size in told)
    assert any(size > MIB for size in told)
