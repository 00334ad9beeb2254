"""Whether something that is done many times takes more memory each time."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 200
ROUNDS = 9  # malloc counts what it keeps for a thread as lent: up to seven blocks of a size


class _MallInfo(ctypes.Structure):
    """What glibc's mallinfo2() returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        ]
    ]


def used_by_c() -> int:
    """Bytes that malloc has lent and not got back."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("this C library cannot tell how much memory is in use")
    library.mallinfo2.restype = _MallInfo
    info = library.mallinfo2()
    return int(info.uordblks) + int(info.hblkhd)


def check_growth(use: Callable[[], None]) -> None:
    """Fail where it leaks, in C or in Python."""
    for _ in range(REPEATS):
        use()
    grown: list[tuple[int, int]] = []
    # A leak grows in every round; a cache that fills up does not.
    while not (
        any(c < REPEATS for c, _ in grown) and any(python < REPEATS / 4 for _, python in grown)
    ):
        assert len(grown) < ROUNDS, f"(bytes of C, objects) in each round: {grown}"
        gc.collect()
        before = used_by_c(), sys.getallocatedblocks()
        for _ in range(REPEATS):
            use()
        gc.collect()
        grown.append((used_by_c() - before[0], sys.getallocatedblocks() - before[1]))
