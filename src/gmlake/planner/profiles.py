"""A step of a trace as a profile, from which to build the plan that a lake would build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gmlake.planner import _planner
from gmlake.planner.lifetimes import counted_events
from gmlake.planner.plan_layout import STEP_REQUEST, STILL_LIVE
from gmlake.trace.layout import Kind, Records, rounded
from gmlake.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.planner.periods import Steps


@dataclass(frozen=True)
class StepProfile:
    """The step that a trace repeats most.

    first_event: its first row in trace.requests. events: its allocations and frees.
    alike: how many steps of the trace are the same, itself included.
    """

    profile: _planner.Profile
    first_event: int
    events: int
    alike: int


def profile_of(trace: Trace, steps: Steps) -> StepProfile | None:
    """Return the last step of the kind with the most allocations; None if no step allocates.

    Steps are the same if they ask for the same sizes on the same streams in the same order.
    """
    watched = Watched(trace, steps)
    kind = watched.most_common_kind()
    if kind is None:
        return None
    alike = np.flatnonzero(watched.kinds == kind)
    last = int(alike[-1])
    previous = int(alike[-2]) if len(alike) > 1 else None
    profile = _planner.Profile(
        watched.requests_of(last, until=last),
        int(watched.event_counts[last]),
        previous=None if previous is None else watched.requests_of(previous, until=last),
        previous_event_count=0 if previous is None else int(watched.event_counts[previous]),
        serial=int(watched.serials[last]),
        previous_serial=0 if previous is None else int(watched.serials[previous]),
    )
    first = int(steps.boundaries[last])
    return StepProfile(profile, first, int(watched.event_counts[last]), len(alike))


class Watched:
    """The steps of a trace, each with its kind; serials count the steps of a kind."""

    def __init__(self, trace: Trace, steps: Steps) -> None:
        self.requests = trace.requests
        self.boundaries = steps.boundaries
        counted = counted_events(trace)
        self.times = np.concatenate([[0], np.cumsum(counted)])
        self.event_counts = np.diff(self.times[self.boundaries])
        kind = self.requests["kind"]
        self.is_alloc = counted & (kind == Kind.ALLOC)
        frees = np.flatnonzero(counted & (kind == Kind.FREE))
        self.free_row = np.full(max(trace.id_count, 1), -1, np.int64)
        self.free_row[self.requests["id"][frees]] = frees
        self.kinds = self._kinds()
        self.serials = np.zeros(len(self.kinds), np.int64)
        for number in np.unique(self.kinds):
            members = self.kinds == number
            self.serials[members] = np.arange(np.count_nonzero(members))

    def _allocs(self, step: int) -> NDArray[np.int64]:
        first, last = int(self.boundaries[step]), int(self.boundaries[step + 1])
        return first + np.flatnonzero(self.is_alloc[first:last])

    def _kinds(self) -> NDArray[np.int64]:
        """Number the steps by their requests, in the order in which kinds appear."""
        known: dict[bytes, int] = {}
        kinds = []
        for step in range(len(self.boundaries) - 1):
            rows = self.requests[self._allocs(step)]
            asked = rounded(rows["size_bytes"]).tobytes() + rows["stream"].tobytes()
            kinds.append(known.setdefault(asked, len(known)))
        return np.array(kinds, np.int64)

    def most_common_kind(self) -> int | None:
        """Return the kind with the most allocations in the trace; of equals, the latest."""
        counts: dict[int, int] = {}
        for step, kind in enumerate(self.kinds.tolist()):
            counts[kind] = counts.get(kind, 0) + len(self._allocs(step))
        best = max(counts, key=lambda kind: (counts[kind], kind), default=None)
        return best if best is not None and counts[best] else None

    def requests_of(self, step: int, until: int) -> Records:
        """Return the requests of a step as a lake has watched them by the end of step `until`."""
        rows = self._allocs(step)
        found = self.requests[rows]
        result = np.zeros(len(rows), STEP_REQUEST)
        result["size_bytes"] = rounded(found["size_bytes"])
        result["stream"] = found["stream"]
        result["birth"] = self.times[rows] - self.times[self.boundaries[step]]
        freed_at = self.free_row[found["id"]]
        is_freed = (freed_at >= 0) & (freed_at < self.boundaries[until + 1])
        result["death"] = STILL_LIVE
        result["death_serial"][:] = 0
        deaths, serials = self._deaths(freed_at[is_freed], int(self.kinds[step]))
        result["death"][is_freed] = deaths
        result["death_serial"][is_freed] = serials
        return result

    def _deaths(
        self, rows: NDArray[np.int64], kind: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the time in its step and the serial of each free, as steps of a kind see it.

        A free in a step of another kind counts at the end of the last step of this kind.
        """
        members = np.flatnonzero(self.kinds == kind)
        place = np.searchsorted(self.boundaries[members], rows, side="right") - 1
        step = members[place]
        time = self.times[rows] - self.times[self.boundaries[step]]
        return np.minimum(time, self.event_counts[step]), self.serials[step]
