"""The classes by which every picture of a recording distinguishes its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES, OTHERS
from gmlake.snapshots.model import UNKNOWN, DeviceSnapshot
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.sites import OwnLines

    Integers = NDArray[np.int64]

_MOST_OWNERS: Final = 8
_MOST_COUNTED: Final = 1 << 20
_MOST_LOOKS: Final = 8
BEFORE_RECORDING: Final = "before the recording"
MEMORY_BEFORE: Final = f"memory from {BEFORE_RECORDING}"
UNKNOWN_LINE: Final = "a line that was not recorded"
_LEAST_TOLD: Final = 0.01  # of the bytes: what has no line
_HOW: Final = (
    "To record lines: `gmlake run --record FILE script.py`, or "
    'torch.cuda.memory._record_memory_history(context="all", stacks="python") before the model is '
    "built."
)
PLURALS: Final = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
    "activation": "activations",
    "temporary": "temporary memory",
}
"""What blocks of a category are together."""


@dataclass(frozen=True)
class Classes:
    """of_id: an index into names, the keys of a legend, for each block.

    is_known: whether the recording distinguishes blocks at all.
    """

    of_id: NDArray[np.int32]
    names: tuple[str, ...]
    is_known: bool = True


class Owners:
    """The line that requested each block, in as few words as possible.

    rows: after these events no line has more than half of what is live if callers tell more.
    """

    def __init__(self, seen: DeviceSnapshot, lines: OwnLines, rows: Iterable[int]) -> None:
        lives = self._lives = seen.lives
        self._sums: dict[int, tuple[Integers, ...]] = {}
        places, of_id = distinct(lives.site)
        split_lines(seen, lines, rows)
        names = [lines.owner(number) or lines.name(number) for number in places.tolist()]
        self.names: list[str] = list(dict.fromkeys([*names, MEMORY_BEFORE, ""]))
        self._nameless = [self.names.index(name) for name in (MEMORY_BEFORE, "")]
        self._has_paths = bool((seen.event_sites > 0).any())
        self._has_events = len(seen.events) > 0
        at = {name: number for number, name in enumerate(self.names)}
        self.of_id: Integers = np.array([at[name] for name in names], np.int64)[of_id]
        before = np.flatnonzero((self.of_id == at[""]) & (lives.born < 0))
        self.of_id[before] = at[MEMORY_BEFORE]
        self._has_no_line: NDArray[np.bool_] = np.isin(self.of_id, self._nameless)
        for said, chosen in _before_in_words(seen, before):
            self.of_id[chosen] = len(self.names)
            self.names.append(said)

    def most_of(self, ids: Integers, row: int) -> str:
        """Say which line holds most of these blocks, live after an event; "" if none is known."""
        held = self.held_by(ids)
        unknown = int(held[self._nameless].max())
        held[self._nameless] = 0
        owner = int(np.argmax(held))
        if not held[owner]:
            return ""
        most = "Most" if held[owner] >= unknown else "Of what has a line, most"
        said = f"{most} is held by {self.names[owner]}: {self._sum(ids[self.of_id[ids] == owner])}"
        return f"{said}, and it grew all along." if self._grew(owner, row) else f"{said}."

    def held_in_words(self, ids: Integers, row: int) -> str:
        """Say who holds most of these blocks, live after an event, and how much has no line."""
        return " ".join(filter(None, (self.most_of(ids, row), self.without_line(ids))))

    def without_line(self, ids: Integers) -> str:
        """Say how much of these blocks has no line, why, and how to record it; "" if little has."""
        lost = ids[self._has_no_line[ids]]
        sizes = self._lives.size_bytes
        if int(sizes[lost].sum()) <= _LEAST_TOLD * int(sizes[ids].sum()):
            return ""
        is_before = self._lives.born[lost] < 0
        before, later = lost[is_before], lost[~is_before]
        says = []
        if len(before) and self._has_events:
            says.append(f"{self._sum(before)} from before the first recorded event")
        elif len(before):
            says.append(f"{self._sum(before)}, as no history was recorded")
        if len(later) and self._has_paths:
            says.append(
                f"{self._sum(later)} of threads that ran no Python, as backward passes do "
                '(stacks="all" names their functions)'
            )
        elif len(later):
            says.append(f"{self._sum(later)}, as the recording has no call paths")
        return f"No line is known of {' and of '.join(says)}. {_HOW}"

    def _sum(self, ids: Integers) -> str:
        count = "one block" if len(ids) == 1 else f"{len(ids):,} blocks"
        return f"{format_size(int(self._lives.size_bytes[ids].sum()))} in {count}"

    def held_by(self, ids: Integers) -> Integers:
        """Return the bytes that each owner has of these blocks."""
        sizes = self._lives.size_bytes
        held = np.bincount(self.of_id[ids], sizes[ids], minlength=len(self.names))
        return held.astype(np.int64)

    def _grew(self, owner: int, row: int) -> bool:
        """Whether an owner had more at each of several events between its first block and `row`."""
        born, made, died, ended = self._sums_of(owner)
        first = int(born[0])
        if first < 0 or row - first < _MOST_LOOKS:
            return False
        looks = np.linspace(first, row, _MOST_LOOKS).astype(np.int64)
        held = made[np.searchsorted(born, looks, side="right")]
        held = held - ended[np.searchsorted(died, looks, side="right")]
        return bool((np.diff(held) > 0).all())

    def _sums_of(self, owner: int) -> tuple[Integers, ...]:
        """Return the births of an owner's blocks with cumulative sizes, and the same for deaths."""
        found = self._sums.get(owner)
        if found is None:
            mine = np.flatnonzero(self.of_id == owner)
            sizes = self._lives.size_bytes[mine]
            parts: list[Integers] = []
            for rows in (self._lives.born[mine], self._lives.died[mine]):
                order = np.argsort(rows, kind="stable")
                parts += [rows[order], np.concatenate([[0], np.cumsum(sizes[order])])]
            found = self._sums[owner] = tuple(parts)
        return found

    def name(self, owner: int) -> str:
        """Return the owner in words, even if it is unknown."""
        return self.names[owner] or UNKNOWN_LINE


def split_lines(seen: DeviceSnapshot, lines: OwnLines, rows: Iterable[int]) -> None:
    """Have lines split by their callers that hold more than half of what is live after an event."""
    for row in rows:
        ids = seen.lives.live_behind(row)
        numbers, which = distinct(seen.lives.site[ids])
        sizes = np.bincount(which, seen.lives.size_bytes[ids], minlength=len(numbers))
        lines.split(dict(zip(numbers.tolist(), sizes.astype(np.int64).tolist(), strict=True)))


def _before_in_words(seen: DeviceSnapshot, ids: Integers) -> Iterator[tuple[str, Integers]]:
    """Yield what blocks from before the recording are, if that is known, and which they are."""
    for name, what in PLURALS.items():
        category = CATEGORIES.index(name)
        mine = ids[seen.categories[ids] == category]
        if seen.is_sure is None:
            groups = [("", mine)]
        else:
            is_sure = seen.is_sure[mine]
            groups = [(" (almost certainly)", mine[is_sure]), (" (most likely)", mine[~is_sure])]
        for how, chosen in groups:
            if len(chosen):
                yield f"{what}{how} from {BEFORE_RECORDING}", chosen


def distinct(numbers: NDArray[Any]) -> tuple[NDArray[np.uint64], Integers]:
    """Return the distinct numbers and the index of each; faster if all are small, or rounded.

    numbers: at least 0.
    """
    bits = int(np.bitwise_or.reduce(numbers)) if len(numbers) else 0
    shift = max((bits & -bits).bit_length() - 1, 0)
    if bits >> shift > _MOST_COUNTED:
        values, which = np.unique(numbers, return_inverse=True)
        return values.astype(np.uint64), which
    small = (numbers >> shift).astype(np.int64)
    is_there = np.bincount(small) > 0
    values = np.flatnonzero(is_there).astype(np.uint64) << np.uint64(shift)
    return values, (np.cumsum(is_there) - 1)[small]


def classes_of(seen: DeviceSnapshot, owners: Owners, ids: Integers) -> Classes:
    """Return categories if a recording has any, else the lines that hold the most.

    ids: of the blocks that decide which lines are distinguished.
    """
    if (seen.categories != UNKNOWN).any():
        return Classes(seen.categories.astype(np.int32), CATEGORIES)
    held = owners.held_by(ids)
    held[owners.names.index("")] = 0
    order = np.argsort(-held, kind="stable")[:_MOST_OWNERS]
    chosen = order[held[order] > 0]
    if not len(chosen):
        return Classes(seen.categories.astype(np.int32), CATEGORIES, is_known=False)
    number = np.full(len(owners.names), len(chosen), np.int32)
    number[chosen] = np.arange(len(chosen))
    return Classes(number[owners.of_id], (*(owners.name(one) for one in chosen.tolist()), OTHERS))
