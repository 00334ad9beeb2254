"""What the ranks of a job say together: who is worst, what differs, who grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.jobs.summary import MOST_LINES, Curve, halved
from gmlake.snapshots.sites import OwnLines, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.jobs.folder import Job, Member

_LEAST_BYTES: Final = 1 << 20
_LEAST_PART: Final = 0.02
"""Differences and growth of less than both are not worth a line."""

_ABOVE: Final = 1.05
"""How far above the middle a rank is said to be above the others."""

_FIRST_STEPS: Final = 2
"""Steps that count for nothing: optimizers make their state in the first, caches fill."""

_LEAST_STEPS: Final = 8
_QUARTERS: Final = 4

_LEAST_RISE: Final = 0.1
"""Of all growth, from one quarter to the next: memory that jumps once does not grow."""

NOT_KNOWN: Final = "a line that is not known"


@dataclass(frozen=True)
class Spread:
    """A figure over all ranks. least, most: its ends, and who they are."""

    name: str
    least: float
    middle: float
    most: float
    least_of: str
    most_of: str


@dataclass(frozen=True)
class Difference:
    """A line that holds more, or less, on some ranks. odd: those farthest from the middle.

    odd_bytes: of them; least_bytes, most_bytes, middle_bytes: of all the others.
    """

    line: str
    odd: tuple[str, ...]
    odd_bytes: int
    middle_bytes: int
    least_bytes: int
    most_bytes: int


@dataclass(frozen=True)
class Straggler:
    """A rank that grows, or is above the others from a step on: its bytes, and what to compare."""

    name: str
    kind: str
    step: int
    before_bytes: int
    after_bytes: int


GROWS: Final = "grows"
ABOVE: Final = "above"


def spreads(members: Sequence[Member]) -> list[Spread]:
    """Return each figure's least, middle and most."""
    figures: dict[str, Callable[[Member], float]] = {
        "live": lambda one: one.device.live_bytes,
        "reserved": lambda one: one.device.reserved_bytes,
        "in use on the device": lambda one: one.device.used_bytes,
        "live / reserved": lambda one: one.share,
    }
    found = []
    for name, figure in figures.items():
        ordered = sorted(members, key=figure)
        least, most = ordered[0], ordered[-1]
        middle = float(np.median([figure(one) for one in members]))
        found.append(Spread(name, figure(least), middle, figure(most), least.name, most.name))
    return found


class Lines:
    """The lines of a job's ranks, as a person would name them."""

    def __init__(self, job: Job) -> None:
        frames = {line.frame for one in job.members for line in one.device.lines}
        frames |= {refusal.frame for rank in job.ranks for refusal in rank.refusals}
        self._numbers = {frame: number for number, frame in enumerate(sorted(frames), 1)}
        self._lines = OwnLines({n: Site(frames=(frame,)) for frame, n in self._numbers.items()})

    def name(self, frame: str) -> str:
        """Return "train.py:31 in step()"."""
        return self._lines.line(self._numbers[frame]) or frame or NOT_KNOWN

    def differences(self, members: Sequence[Member]) -> list[Difference]:
        """Return the lines that hold different amounts, those that differ most first."""
        members = [one for one in members if one.device.lines]
        # A line that a full list has not is no larger than the last one there.
        full = [one.device.lines if len(one.device.lines) == MOST_LINES else () for one in members]
        absent = np.array([lines[-1].size_bytes if lines else 0 for lines in full], np.int64)
        holders: dict[str, dict[int, int]] = {}
        for at, one in enumerate(members):
            for line, size_bytes in self._held(one).items():
                holders.setdefault(line, {})[at] = size_bytes
        found = []
        for line, sizes in holders.items():
            held = absent.copy()
            held[list(sizes)] = list(sizes.values())
            difference = _difference(line, held, members)
            if difference is not None:
                found.append(difference)
        return sorted(found, key=lambda one: -abs(one.odd_bytes - one.middle_bytes))

    def _held(self, member: Member) -> dict[str, int]:
        held: dict[str, int] = {}
        for line in member.device.lines:
            name = self.name(line.frame)
            held[name] = held.get(name, 0) + line.size_bytes
        return held


def _difference(line: str, held: NDArray[np.int64], members: Sequence[Member]) -> Difference | None:
    """Return how a line differs: the ranks nearer to the far end than to the middle are odd."""
    middle = int(np.median(held))
    far = int(held[np.argmax(np.abs(held - middle))])
    if len(held) == 2:  # noqa: PLR2004 (neither is in the middle of two)
        far, middle = int(held.max()), int(held.min())
    if abs(far - middle) <= max(_LEAST_BYTES, _LEAST_PART * max(far, middle)):
        return None
    is_odd = np.abs(held - far) < np.abs(held - middle)
    others = held[~is_odd]
    names = tuple(members[at].name for at in np.flatnonzero(is_odd).tolist())
    ends = int(others.min()), int(others.max())
    return Difference(line, names, far, int(np.median(others)), *ends)


# ---- over steps


def aligned(curves: Iterable[Curve]) -> tuple[int, list[NDArray[np.int64]]]:
    """Return how many steps a point stands for, and the peaks of live memory of each curve."""
    found = [(curve.each, list(curve.live)) for curve in curves]
    each = max((one for one, _ in found), default=1)
    rows = []
    for own, points in found:
        while own < each and points:
            own, points = own * 2, halved(points)  # noqa: PLW2901 (until they are alike)
        rows.append(np.array(points, np.int64))
    return each, rows


def stragglers(members: Sequence[Member]) -> list[Straggler]:
    """Return the ranks whose memory grows over steps, or stays above that of the others."""
    each, rows = aligned(one.device.curve for one in members)
    middle = middle_of(rows)
    found = []
    for one, row in zip(members, rows, strict=True):
        found += _growth(one.name, row, each) + _above(one.name, row, middle, each)
    return sorted(found, key=lambda one: (one.kind, one.before_bytes - one.after_bytes))


def middle_of(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the middle of all ranks at each point that more than half of them have."""
    rows = [row for row in rows if len(row)]
    if not rows:
        return np.zeros(0, np.int64)
    lengths = sorted(map(len, rows), reverse=True)
    table = np.full((len(rows), lengths[len(rows) // 2]), np.nan)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row[: table.shape[1]]
    middle: NDArray[np.int64] = np.nanmedian(table, axis=0).astype(np.int64)
    return middle


def _growth(name: str, row: NDArray[np.int64], each: int) -> list[Straggler]:
    """Return a rank that is higher in every quarter of its steps than in the one before."""
    first = -(-_FIRST_STEPS // each)
    row = row[first:]
    if len(row) < _LEAST_STEPS:
        return []
    parts = [int(np.median(part)) for part in np.array_split(row, _QUARTERS)]
    rises = np.diff(parts)
    least = max(_LEAST_BYTES, _LEAST_PART * parts[0])
    whole = parts[-1] - parts[0]
    if whole <= least or (rises < _LEAST_RISE * whole).any():
        return []
    return [Straggler(name, GROWS, first * each, int(row[0]), int(row[-1]))]


def _above(
    name: str, row: NDArray[np.int64], middle: NDArray[np.int64], each: int
) -> list[Straggler]:
    """Return a rank that is above the middle from a step on, as far as there is a middle."""
    row, others = row[: len(middle)], middle[: len(row)]
    is_below = row <= np.maximum(_ABOVE * others, others + _LEAST_BYTES)
    first = int(np.flatnonzero(is_below)[-1]) + 1 if is_below.any() else 0
    if len(row) - first < _LEAST_STEPS:
        return []
    after, compared = int(np.median(row[first:])), int(np.median(others[first:]))
    return [Straggler(name, ABOVE, first * each, compared, after)]
