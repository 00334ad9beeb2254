"""What the blocks of a recording were for, from notes that the program made while it ran."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gmlake.snapshots.model import DeviceSnapshot

    Note = tuple[int, str, list[int]]

PARAMETER, GRADIENT, STATE, ACTIVATION, TEMPORARY, UNKNOWN = range(len(CATEGORIES))
_WEAKEST_FIRST = ("activation", "gradient", "optimizer state", "parameter")


def known_categories(seen: DeviceSnapshot, notes: Sequence[Note]) -> NDArray[np.int8]:
    """Return an index into CATEGORIES for each block.

    notes: (allocations before, what, addresses), as benchmarks/labelled.py prints them. An address
    stands for the block that was live there then. A block that was made in a forward pass and is
    live when the next backward pass or a refusal begins is an activation, too; what else ends
    between two notes of a phase is temporary. What autograd saves within a backward pass is not
    noted: recomputed, it is temporary.
    """
    lives = seen.lives
    made = np.flatnonzero(seen.events["kind"] == Kind.ALLOC)
    rows = np.append(made, len(seen.events))  # the row before which so many allocations were
    refused = np.flatnonzero(seen.events["kind"] == Kind.OOM)
    phases = [
        (int(refused[-1] if what == "refused" else rows[count]), what)
        for count, what, _ in notes
        if what not in CATEGORIES
    ]
    result = np.full(len(lives.born), UNKNOWN, np.int8)
    marks = np.array([row for row, _ in phases], np.int64)
    first, last = np.searchsorted(marks, lives.born, "right"), np.searchsorted(marks, lives.died)
    result[(first == last) & (lives.died < len(seen.events))] = TEMPORARY
    for (begin, what), (end, following) in pairwise(phases):
        if what == "forward" and following in ("backward", "refused"):
            is_made = (lives.born >= begin) & (lives.born < end) & (lives.died >= end)
            # What outlives the passes behind the next is something else, a library's own memory.
            later = [row for row, name in phases if name == "backward" and row > end][1:2]
            result[is_made & ((lives.died < later[0]) if later else True)] = ACTIVATION
    at: dict[int, list[int]] = {}
    for number in np.argsort(lives.born, kind="stable").tolist():
        at.setdefault(int(lives.address[number]), []).append(number)
    for wanted in _WEAKEST_FIRST:
        for count, what, addresses in notes:
            if what != wanted:
                continue
            row = int(rows[count]) if count < len(rows) else len(seen.events)
            for address in addresses:
                earlier = [one for one in at.get(address, ()) if lives.born[one] < row]
                if earlier:
                    result[earlier[-1]] = CATEGORIES.index(what)
    return result
