"""Categories: what each allocation of a recording is for.

By rules, the first that applies:

1. parameter, optimizer state, gradient: while the allocation was live, its address was that of a
   parameter or buffer of a known model, of a tensor in an optimizer's state, or of a parameter's
   `grad`. Parameters are noted when a model is first seen and at the end, gradients right before
   each optimizer's step, states after a step that made some. An address is looked up together with
   its time, since addresses are reused.
2. activation: requested in a forward pass, or between one and what follows it (the loss), and live
   when the next backward pass begins.
3. temporary: freed in the phase in which it was made, before the mark of the next one.
4. unknown: everything else, such as batches of data, memory that outlives an inference, and
   gradients of a program whose optimizer is not of torch.optim.

Limits: an activation that a checkpoint recomputes within the backward pass is temporary. The output
of a forward pass under no_grad() that is kept until the next backward pass counts as an activation.
If several threads train at once, their phases mix, which makes rules 2 and 3 unreliable.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.pytorch.call_sites import BACKWARD, FORWARD, OPTIMIZER
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gmlake.snapshots.peaks import Lives
    from gmlake.trace.layout import Records

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

PARAMETER, GRADIENT, STATE, ACTIVATION, TEMPORARY, UNKNOWN = range(len(CATEGORIES))

MOST_NOTES: Final = 1 << 20
"""The most addresses kept; the oldest are dropped first. 8 MiB."""

_STEP: Final = "step "  # how the labels of marks begin that are no phases
_NO_LOSS: Final = ("", FORWARD, BACKWARD, OPTIMIZER)  # phases in which no loss is computed
_WEAKEST_FIRST: Final = (GRADIENT, STATE, PARAMETER)


class PhasedSite(Protocol):
    """A place of which the phase is known."""

    @property
    def phase(self) -> str:
        """The name of the phase."""


class Note(NamedTuple):
    """Addresses that were seen to be of one category at one time, in ns as in events."""

    device: int
    category: int
    time_ns: int
    addresses: NDArray[np.uint64]


class Known:
    """Addresses of known category. Any thread may add to them."""

    def __init__(self, most: int = MOST_NOTES) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._count = 0
        self._notes: deque[Note] = deque()

    def add(self, device: int, category: int, time_ns: int, addresses: Sequence[int]) -> None:
        """Add a note; the oldest is forgotten if there are too many."""
        note = Note(device, category, time_ns, np.array(addresses, np.uint64))
        with self._lock:
            self._notes.append(note)
            self._count += len(note.addresses)
            while self._count > self._most and len(self._notes) > 1:
                self._count -= len(self._notes.popleft().addresses)

    def of(self, device: int) -> list[Note]:
        """Return the notes of a device, oldest first."""
        with self._lock:
            return [note for note in self._notes if note.device == device]


def classify(
    lives: Lives,
    events: Records,
    labels: Sequence[str],
    sites: Mapping[int, PhasedSite],
    notes: Sequence[Note] = (),
) -> NDArray[np.int8]:
    """Return a category for each allocation, as an index into gmlake.pictures.CATEGORIES.

    lives: the lives of blocks, as rows of `events`. events: of one device, in order, including the
    marks. labels: of the marks, by their ids. sites: by the numbers in `lives`. notes: the known
    addresses of that device.
    """
    result = np.full(len(lives.born), UNKNOWN, np.int8)
    marks = _Marks(events, labels)
    first, last = marks.count_until(lives.born), marks.count_until(lives.died)
    result[(first == last) & (first > 0) & (lives.died < len(events))] = TEMPORARY
    result[_is_activation(lives, marks, sites)] = ACTIVATION
    finder = _Finder(lives, events)
    for category in _WEAKEST_FIRST:
        for note in notes:
            if note.category == category:
                result[finder.live_at(note.addresses, note.time_ns)] = category
    return result


class _Marks:
    """The marks of phases: their rows and labels."""

    def __init__(self, events: Records, labels: Sequence[str]) -> None:
        rows = np.flatnonzero(events["kind"] == Kind.MARK)
        ids = events["id"][rows].astype(np.int64)
        is_phase = np.array([not text.startswith(_STEP) for text in labels] + [True], np.bool_)
        shown = is_phase[np.minimum(ids, len(labels))]
        self.rows: Integers = rows[shown]
        self.is_backward = self._is(BACKWARD, ids[shown], labels)
        is_forward = self._is(FORWARD, ids[shown], labels)
        is_other = ~(is_forward | self.is_backward | self._is(OPTIMIZER, ids[shown], labels))
        self.is_loss = is_other & np.concatenate([[False], is_forward])[:-1]

    @staticmethod
    def _is(name: str, ids: Integers, labels: Sequence[str]) -> Flags:
        named = np.array([*(text == name for text in labels), False], np.bool_)
        result: Flags = named[np.minimum(ids, len(labels))]
        return result

    def count_until(self, rows: Integers) -> Integers:
        """Return how many marks there are before each of these rows."""
        result: Integers = np.searchsorted(self.rows, rows)
        return result


def _is_activation(lives: Lives, marks: _Marks, sites: Mapping[int, PhasedSite]) -> Flags:
    """Return for each allocation whether a forward pass made it and a backward pass found it."""
    numbers, which = np.unique(lives.site, return_inverse=True)
    phases = [sites[number].phase if number in sites else "" for number in numbers.tolist()]
    is_forward = np.array([phase == FORWARD for phase in phases], np.bool_)[which]
    is_other = np.array([phase not in _NO_LOSS for phase in phases], np.bool_)[which]
    before = marks.count_until(lives.born)  # 0: no mark is before it
    is_loss = is_other & np.concatenate([[False], marks.is_loss])[before]
    passes = marks.rows[marks.is_backward]
    following = np.append(passes, np.iinfo(np.int64).max)[np.searchsorted(passes, lives.born)]
    result: Flags = (is_forward | is_loss) & (lives.born >= 0) & (lives.died > following)
    return result


class _Finder:
    """Finds the allocation that had an address at a time."""

    def __init__(self, lives: Lives, events: Records) -> None:
        self._lives = lives
        self._times: NDArray[np.uint64] = events["time_ns"]
        self._order = np.lexsort((lives.born, lives.address))
        self._addresses, starts = np.unique(lives.address[self._order], return_index=True)
        self._span = len(events) + 2
        which = np.zeros(len(self._order), np.int64)
        which[starts[1:]] = 1
        # Ascending: by address, and of one address by birth, which is -1 or a row.
        self._keys: Integers = np.cumsum(which) * self._span + lives.born[self._order] + 1

    def live_at(self, addresses: NDArray[np.uint64], time_ns: int) -> Integers:
        """Return the ids that were live then and began at one of the addresses."""
        if not len(self._order):
            return np.zeros(0, np.int64)
        row = int(np.searchsorted(self._times, np.uint64(time_ns), side="right"))
        which = np.minimum(np.searchsorted(self._addresses, addresses), len(self._addresses) - 1)
        which = which[self._addresses[which] == addresses]
        # The last that was born before the row, of that address or, if none was, of another.
        last = np.searchsorted(self._keys, which * self._span + row, side="right") - 1
        is_same = (last >= 0) & (self._keys[last] >= which * self._span)
        found: Integers = self._order[last[is_same]]
        return found[self._lives.died[found] >= row]
