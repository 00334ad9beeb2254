"""Finds where the steps of a trace begin: at its marks, or from its repetitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.trace.layout import REQUEST, Kind, rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.trace.trace import Trace

_GRAMS: Final = (16, 64)
"""Lengths of runs of allocations whose recurrence suggests a period."""

_CANDIDATES: Final = 32
_MISMATCH_COST: Final = 20
"""Agreements that outweigh one allocation that differs from the one a period before."""

_LEAST_FREED: Final = 0.5
"""The share of a step's bytes freed within two steps; a part of a step frees less."""

_MOST_GROWTH: Final = 0.001
"""The share of a period's moved bytes that a step may keep; layers that keep activations exceed it.
"""

_LEAST_MOVED: Final = 0.25
"""The range of live bytes in a step, as a share of the whole trace's; a layer's is small."""

_LEAST_COVERAGE: Final = 0.1
"""The share of all allocations in repeated periods; less is chance."""

_NEARLY_BEST: Final = 0.9
_MULTIPLIER: Final = np.uint64(6364136223846793005)


@dataclass(frozen=True)
class Steps:
    """The steps of a trace: step i is the rows from boundaries[i] up to boundaries[i + 1].

    Rows are those of trace.requests. With fewer than two boundaries there are no steps.
    """

    boundaries: NDArray[np.int64]
    are_marked: bool

    def __len__(self) -> int:
        return max(len(self.boundaries) - 1, 0)


def find_steps(trace: Trace) -> Steps:
    """Return the steps between the trace's marks, or steps found if it has fewer than two."""
    marks = np.flatnonzero(trace.requests["kind"] == Kind.MARK)
    if len(marks) > 1:
        return Steps(marks, are_marked=True)
    return Steps(_find_periods(trace), are_marked=False)


def with_marks(trace: Trace) -> Trace:
    """Return the trace with a mark at each found step, or the same trace if it has marks."""
    steps = find_steps(trace)
    if steps.are_marked or not len(steps):
        return trace
    marks = np.zeros(len(steps.boundaries), REQUEST)
    marks["kind"] = Kind.MARK
    before = trace.requests
    marks["time_ns"] = before["time_ns"][np.minimum(steps.boundaries, len(before) - 1)]
    return replace(trace, requests=np.insert(before, steps.boundaries, marks))


# ---- periods


@dataclass(frozen=True)
class _Region:
    """Allocations [first, last), each like the one a period later, as far as that is inside."""

    period: int
    first: int
    last: int


class Course:
    """A trace, allocation by allocation."""

    def __init__(self, trace: Trace) -> None:
        requests = trace.requests
        kind = requests["kind"]
        self.event_count = len(requests)
        self.rows = np.flatnonzero(kind == Kind.ALLOC)
        self.count = len(self.rows)
        self.sizes = rounded(requests["size_bytes"][self.rows]).astype(np.int64)
        pairs = np.stack([self.sizes.astype(np.uint64), requests["stream"][self.rows]], axis=1)
        _, symbols = np.unique(pairs, axis=0, return_inverse=True)
        self.symbols = symbols.reshape(-1).astype(np.uint64)
        # For each allocation, the number of allocations before its free; the maximum if not freed.
        frees = np.flatnonzero(kind == Kind.FREE)
        position = np.full(max(trace.id_count, 1), -1, np.int64)
        position[requests["id"][self.rows]] = np.arange(self.count)
        freed = position[requests["id"][frees]]
        before = np.cumsum(kind == Kind.ALLOC)[frees]
        self.death = np.full(self.count, np.iinfo(np.int64).max, np.int64)
        self.death[freed[freed >= 0]] = before[freed >= 0]
        self.live = self._live_before(trace, frees)

    def _live_before(self, trace: Trace, frees: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the live bytes right before each allocation, then those at the end."""
        sizes = np.zeros(max(trace.id_count, 1), np.int64)
        sizes[trace.start_blocks["id"]] = rounded(trace.start_blocks["requested_bytes"])
        start = int(sizes.sum())
        sizes[trace.requests["id"][self.rows]] = self.sizes
        change = np.zeros(len(trace.requests), np.int64)
        change[self.rows] = self.sizes
        change[frees] = -sizes[trace.requests["id"][frees]]
        after = start + np.cumsum(change)
        return np.append(after[self.rows] - self.sizes, after[-1] if len(after) else start)

    def candidates(self) -> list[int]:
        """Return the distances at which runs of allocations repeat, best coverage first."""
        weights: dict[int, int] = {}
        for length in _GRAMS:
            if self.count < 2 * length:
                continue
            hashes = np.zeros(self.count - length + 1, np.uint64)
            for i in range(length):
                hashes = hashes * _MULTIPLIER + self.symbols[i : len(hashes) + i] + np.uint64(1)
            order = np.argsort(hashes, kind="stable")
            returns = np.diff(order)[hashes[order[1:]] == hashes[order[:-1]]]
            distances, counts = np.unique(returns, return_counts=True)
            for distance, count in zip(distances.tolist(), counts.tolist(), strict=True):
                weights[distance] = max(weights.get(distance, 0), count * distance)
        ranked = sorted(weights, key=lambda distance: (-weights[distance], distance))
        return ranked[:_CANDIDATES]

    def region(self, period: int) -> _Region | None:
        """Return the longest stretch that repeats itself, if agreements outweigh differences."""
        agrees = self.symbols[period:] == self.symbols[:-period]
        score = np.concatenate([[0], np.cumsum(np.where(agrees, 1, -_MISMATCH_COST))])
        lowest = np.minimum.accumulate(score)
        last = int(np.argmax(score - lowest))
        first = int(np.argmax(score[: last + 1] == lowest[last]))
        if last - first < period:
            return None  # less than two whole periods
        return _Region(period, first, last + period)

    def worth(self, region: _Region) -> float:
        """Return the share of all allocations in the region; 0 if its period is not a step."""
        whole = (region.last - region.first) // region.period * region.period
        period = region.period
        middle = slice(region.first, region.first + whole - period)
        lived = self.death[middle] - np.arange(self.count)[middle]
        sizes = self.sizes[middle]
        if sizes[lived <= 2 * period].sum() < _LEAST_FREED * sizes.sum():
            return 0.0
        live = self.live[region.first : region.first + whole + 1]
        growth = abs(int(live[-1] - live[period])) * period / max(whole - period, 1)
        moved = int(live[-period - 1 :].max() - live[-period - 1 :].min())
        if growth > _MOST_GROWTH * moved or moved < _LEAST_MOVED * np.ptp(self.live):
            return 0.0
        return (region.last - region.first) / self.count


def _find_periods(trace: Trace) -> NDArray[np.int64]:
    """Return the rows at which the steps of the best period begin; none if nothing repeats."""
    course = Course(trace)
    found: list[tuple[float, _Region]] = []
    for period in course.candidates():
        region = course.region(period)
        if region is not None and (worth := course.worth(region)) >= _LEAST_COVERAGE:
            found.append((worth, region))
    if not found:
        return np.zeros(0, np.int64)
    best = max(worth for worth, _ in found)
    region = min(
        (region for worth, region in found if worth >= _NEARLY_BEST * best),
        key=lambda region: region.period,
    )
    return _boundaries(course, region)


def _boundaries(course: Course, region: _Region) -> NDArray[np.int64]:
    """Return the rows where steps begin: where the fewest bytes are live within the period."""
    period = region.period
    lowest = int(np.argmin(course.live[region.first : region.first + period]))
    begins = np.arange(region.first + lowest, region.last + 1, period)
    rows = np.append(course.rows, course.event_count)  # frees that end the trace end its last step
    return rows[begins].astype(np.int64)
