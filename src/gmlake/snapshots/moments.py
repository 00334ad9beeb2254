"""Moments of a recording: the state of memory, why a request did not fit, what strands memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.figures import Moment, Moments, Stranded
from gmlake.snapshots.classes import BEFORE_RECORDING, Owners
from gmlake.snapshots.held import held_over, places_of
from gmlake.snapshots.model import fragmentation_of
from gmlake.snapshots.peaks import BEFORE
from gmlake.snapshots.pool_names import in_pools, private_pools
from gmlake.trace.layout import SMALL_LIMIT, SMALL_SEGMENT, Kind, SpanKind
from gmlake.units import format_size, format_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.pictures.figures import Numbers
    from gmlake.snapshots.held import Places
    from gmlake.snapshots.model import DeviceSnapshot
    from gmlake.snapshots.pool_names import PrivatePool
    from gmlake.snapshots.sites import OwnLines

    Integers = NDArray[np.int64]
    Short = NDArray[np.int32]

MOST_MOMENTS: Final = 160
"""Prepared on one page; of a recording with fewer events each is one."""

MOST_OWNERS: Final = 12
"""Of stranded memory, named for each moment."""

MOST_FREE: Final = 1000
"""Free pieces of a moment that are drawn, the largest."""

_MOST_OF_A_KIND: Final = MOST_MOMENTS // 4
_LONGEST_LABEL: Final = 200  # of a mark, as files can be hostile
_NS: Final = 1e9


def seconds_of(seen: DeviceSnapshot) -> Numbers | None:
    """Return the time of each event since the first, ascending; None if no times are known."""
    times = seen.events["time_ns"]
    known = times[times > 0]
    if not len(known):
        return None
    latest = np.maximum.accumulate(np.maximum(times, known[0]))
    result: Numbers = (latest - latest[0]).astype(np.float64) / _NS
    return result


def key_row(seen: DeviceSnapshot) -> int:
    """Return the event after which memory matters most: the last refusal, else the peak."""
    refused = np.flatnonzero(seen.events["kind"] == Kind.OOM)
    return int(refused[-1]) if len(refused) else seen.peak.row


def chosen_rows(seen: DeviceSnapshot, turns: Integers) -> Integers:
    """Return the events whose moments are prepared, ascending; BEFORE for the start.

    turns: candidates: the highest and the lowest points of stretches.
    """
    rows, kind = len(seen.events), seen.events["kind"]
    if rows < MOST_MOMENTS:
        return np.arange(BEFORE, rows)
    told = [
        evenly(np.flatnonzero(kind == which), _MOST_OF_A_KIND) for which in (Kind.OOM, Kind.MARK)
    ]
    chosen = np.unique([BEFORE, key_row(seen), seen.peak.row, rows - 1, *np.concatenate(told)])
    more = evenly(turns[~np.isin(turns, chosen)], MOST_MOMENTS - len(chosen))
    return np.unique(np.concatenate([chosen, more]))


def evenly(rows: Integers, most: int) -> Integers:
    """Return at most that many rows, evenly spaced."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class Free:
    """Free pieces at one moment, by address; arrays of shape (pieces,).

    before, behind: the rows of Places that keep a piece from growing; -1 if there is none, at the
    edge of the reserved memory. stream: its owner. is_small: of PyTorch's small pool.
    pool: the number of the private pool; 0: none.
    """

    begin: Integers
    end: Integers
    before: Integers
    behind: Integers
    stream: NDArray[np.uint64]
    is_small: NDArray[np.bool_]
    pool: NDArray[np.uint32]

    @property
    def sizes(self) -> Integers:
        """Return the sizes of the pieces."""
        return self.end - self.begin

    def largest(self, most: int) -> Free:
        """Return the largest pieces, still by address."""
        if len(self.begin) <= most:
            return self
        chosen = np.sort(np.argpartition(-self.sizes, most)[:most])
        return Free(**{name: column[chosen] for name, column in vars(self).items()})

    @property
    def is_stranded(self) -> NDArray[np.bool_]:
        """Return which pieces a block strands; wholly free ranges can be released."""
        result: NDArray[np.bool_] = (self.before >= 0) | (self.behind >= 0)
        return result


@dataclass(frozen=True)
class State:
    """The memory of one moment, in bytes: pages, tables and answers about it have these figures.

    held_bytes: reserved from the driver; None, like what is free of it, if that is not recorded.
    largest_bytes: the largest request that the free memory serves. is_counted: the allocator said
    so itself; else it is the largest piece. refused_bytes, left_bytes, others_bytes: of a refusal:
    its size, what the device had left, and what others had, each 0 if it is not known.
    """

    live_bytes: int
    held_bytes: int | None = None
    free_bytes: int | None = None
    pieces: int | None = None
    largest_bytes: int | None = None
    is_counted: bool = False
    refused_bytes: int = 0
    left_bytes: int = 0
    others_bytes: int = 0

    @property
    def fragmentation(self) -> float | None:
        """1 - largest / free, from 0 to 1; None if reserved memory is not recorded."""
        if self.free_bytes is None or self.largest_bytes is None:
            return None
        return fragmentation_of(self.free_bytes, self.largest_bytes)


class Playback:
    """One device from moment to moment.

    rows: the events that the moments follow; shown: the one that matters. held, places: of the
    whole recording. first, end: for each block, its moments, first to end - 1.
    """

    def __init__(
        self,
        seen: DeviceSnapshot,
        lines: OwnLines,
        turns: Integers | None = None,
        *,
        rows: Integers | None = None,
    ) -> None:
        """Prepare the moments after `rows`, ascending; without these, those that a page shows."""
        self.seen, self.lines = seen, lines
        if rows is None:
            rows = chosen_rows(seen, np.zeros(0, np.int64) if turns is None else turns)
        self.rows = rows
        self.shown = min(int(np.searchsorted(rows, key_row(seen))), len(rows) - 1)
        self.held = held_over(seen)
        self.places: Places = places_of(seen, self.held)
        self.owners = Owners(seen, lines)
        self.seconds = seconds_of(seen)
        # Moments by event: how many there are before each, one look-up instead of a search.
        before = np.zeros(len(seen.events) + 2, np.int32)  # half the memory to pass over
        before[self.rows + 2] = 1
        self._before: Short = np.cumsum(before, dtype=np.int32)
        lives = seen.lives
        self.first: Short = self.moment_from(lives.born)
        self.end: Short = np.where(lives.size_bytes > 0, self.moment_from(lives.died), 0)
        self._marks = np.flatnonzero(seen.events["kind"] == Kind.MARK)

    def moment_from(self, row: Integers) -> Short:
        """Return the first moment that is not before an event."""
        result: Short = self._before[row + 1]
        return result

    @property
    def shown_ids(self) -> Integers:
        """The blocks live at the moment that matters."""
        return self.live_at(self.shown)

    def live_at(self, moment: int) -> Integers:
        """Return the ids of the blocks live at a moment."""
        result: Integers = np.flatnonzero((self.first <= moment) & (self.end > moment))
        return result

    @cached_property
    def _joins(self) -> bool:
        """Whether a request may be served by pieces that are not adjacent."""
        return bool((self.seen.spans["kind"] == SpanKind.BASE).any())

    @cached_property
    def _merges(self) -> bool:
        """Whether a piece may extend into the next range reserved from the driver."""
        return self.seen.trace.is_expandable or self._joins

    @cached_property
    def _sorted_parts(self) -> tuple[Integers, Short, Short]:
        """Rows of Places live at any moment, by address: their first moment, and their end."""
        block = self.places.block
        first, end = self.first[block], self.end[block]
        chosen = np.flatnonzero(first < end)
        chosen = chosen[np.argsort(self.places.begin[chosen], kind="stable")]
        return chosen, first[chosen], end[chosen]

    @cached_property
    def _lost(self) -> tuple[Short, Short, Integers]:
        """For blocks whose place is not recorded: the first moment, the end, and the size."""
        lost = self.places.lost
        lost = lost[self.first[lost] < self.end[lost]]
        return self.first[lost], self.end[lost], self.seen.lives.size_bytes[lost]

    @cached_property
    def pools(self) -> tuple[PrivatePool, ...]:
        """The private pools, in the order of their numbers."""
        return private_pools(self.seen, self.lines)

    def pool(self, number: int) -> PrivatePool | None:
        """Return the private pool of a number; None for 0."""
        return self.pools[number - 1] if number else None

    def pool_name(self, number: int) -> str:
        """Return the name of the private pool of a number; "" for 0."""
        pool = self.pool(number)
        return pool.name if pool else ""

    @cached_property
    def block_pools(self) -> NDArray[np.uint32]:
        """The number of the private pool of each block; 0: none."""
        return self.seen.trace.block_pools

    @cached_property
    def held_pools(self) -> NDArray[np.uint32]:
        """The number of the private pool of each row of `held`; 0: none."""
        trace, born = self.seen.trace, self.held["born"]
        pools = trace.pools_before(self.held["begin"].astype(np.uint64)).astype(np.uint32)
        is_made = born >= 0
        pools[is_made] = self.seen.events["pool"][born[is_made]]
        return pools

    @cached_property
    def held_moments(self) -> tuple[Short, Short]:
        """For each row of `held`, the first moment and the end."""
        return self.moment_from(self.held["born"]), self.moment_from(self.held["died"])

    def held_at(self, moment: int) -> Integers:
        """Return the rows of `held` at a moment, by address."""
        first, end = self.held_moments
        result: Integers = np.flatnonzero((first <= moment) & (end > moment))
        return result

    def parts_at(self, moment: int) -> Integers:
        """Return the rows of `places` live at a moment, by address, without overlaps."""
        part, first, end = self._sorted_parts
        chosen: Integers = part[(first <= moment) & (end > moment)]
        chosen = chosen[self.held_moments[1][self.places.held[chosen]] > moment]
        begin, reach = self.places.begin[chosen], np.maximum.accumulate(self.places.end[chosen])
        is_clear = np.concatenate([[True], begin[1:] >= reach[:-1]])[: len(chosen)]
        result: Integers = chosen[is_clear]
        return result

    def free_at(self, moment: int) -> Free:
        """Return the free pieces. A rest that PyTorch cannot split off a block is part of it."""
        held, parts = self.held_at(moment), self.parts_at(moment)
        low, high = self.held["begin"][held], self.held["end"][held]
        begins, ends = self.places.begin[parts], self.places.end[parts]
        is_new = np.concatenate([[True], low[1:] != high[:-1]])[: len(low)]
        if not self._merges:
            is_new[1:] |= np.diff(self.held["range"][held]) != 0
        is_last = np.concatenate([is_new[1:], [True]])[: len(low)]
        held, low, high = held[is_new], low[is_new], high[is_last]
        free_begin = np.sort(np.concatenate([low, ends]), kind="stable")
        free_end = np.sort(np.concatenate([high, begins]), kind="stable")
        chosen = free_end > free_begin
        free_begin, free_end = free_begin[chosen], free_end[chosen]
        where = np.searchsorted(low, free_begin, side="right") - 1
        before = _at(ends, free_begin, parts, free_begin > low[where])
        behind = _at(begins, free_end, parts, free_end < high[where])
        is_small = (high - low)[where] == SMALL_SEGMENT
        is_slack = (free_end - free_begin <= SMALL_LIMIT) & (before >= 0) & ~is_small
        kept = ~is_slack | self._merges
        streams, pools = self.held["stream"][held[where]], self.held_pools[held[where]]
        columns = (free_begin, free_end, before, behind, streams, is_small, pools)
        return Free(*(column[kept] for column in columns))

    def state_at(self, moment: int, free: Free | None = None) -> State:
        """Return the figures of a moment. free: its free pieces, if the caller has them."""
        row, seen = int(self.rows[moment]), self.seen
        lives = seen.lives
        live_bytes = int(lives.live_bytes[row]) if row >= 0 else lives.start_bytes
        state = State(live_bytes)
        if len(self.held):
            free = self.free_at(moment) if free is None else free
            held = self.held[self.held_at(moment)]
            largest = seen.counted_largest_bytes if self._is_end(row) else None
            state = State(
                live_bytes,
                int((held["end"] - held["begin"]).sum()),
                int(free.sizes.sum()),
                len(free.sizes),
                int(free.sizes.max(initial=0)) if largest is None else largest,
                largest is not None,
            )
        if row < 0 or seen.events["kind"][row] != Kind.OOM:
            return state
        left = int(seen.events["address"][row])
        return replace(
            state,
            refused_bytes=int(seen.events["size_bytes"][row]),
            left_bytes=left,
            others_bytes=seen.trace.others_bytes(state.held_bytes or 0, left),
        )

    def _is_end(self, row: int) -> bool:
        """Whether memory is after an event as it is at the end."""
        return row >= self._last_change

    @cached_property
    def _last_change(self) -> int:
        changes = (Kind.ALLOC, Kind.FREE, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
        rows = np.flatnonzero(np.isin(self.seen.events["kind"], changes))
        return int(rows[-1]) if len(rows) else BEFORE

    # ---- in words

    def describe(self, topic: str, group: int) -> Moments:
        """Return every moment in words."""
        rows = len(self.seen.events)
        note = "" if len(self.rows) > rows else _note(len(self.rows), rows)
        moments = tuple(moment for moment, _ in self._each)
        title = f"{topic} {self.name(self.shown)}"
        return Moments(title, moments, self.shown, note, topic, group)

    def when(self, row: int, count: int = 0) -> str:
        """Return an event as a place in the run: "event 1,204, 2.3 s in"; count: of all events."""
        if row < 0:
            return BEFORE_RECORDING
        said = f"event {row:,} of {count:,}" if count else f"event {row:,}"
        if self.seconds is None:
            return said
        return f"{said}, {format_time(float(self.seconds[row]))} in"

    def name(self, moment: int) -> str:
        """Return the name of a moment, as in "live at the peak"."""
        row = int(self.rows[moment])
        if row >= 0 and self.seen.events["kind"][row] == Kind.OOM:
            return "at the refusal" if moment == self.shown else f"at the refusal, event {row:,}"
        if not len(self.seen.events):
            return "at the end"
        if row == self.seen.peak.row:
            return "at the peak"
        if row == len(self.seen.events) - 1:
            return "at the end"
        return "before the first event" if row < 0 else f"after event {row:,}"

    @cached_property
    def _each(self) -> list[tuple[Moment, Free | None]]:
        return [self._moment(number) for number in range(len(self.rows))]

    @property
    def free(self) -> list[Free]:
        """The largest free pieces of each moment; empty if reserved memory is not recorded."""
        return [free for _, free in self._each if free is not None]

    def _moment(self, number: int) -> tuple[Moment, Free | None]:
        row = int(self.rows[number])
        free = self.free_at(number) if len(self.held) else None
        state = self.state_at(number, free)
        says = [f"{self._what(row)} {self._how(number, row, state)}"]
        stranded: tuple[Stranded, ...] = ()
        if free is not None:
            stranded = self._stranded(free)
            if row >= 0 and self.seen.events["kind"][row] == Kind.OOM:
                says.append(self._why(row, free))
        if most := self.owners.most_of(self.live_at(number), row):
            says.append(most)
        if free is not None and self.pools:
            says += self._in_pools(number, free)
        if free is not None:
            if stranded:
                says.append(_most_of_it(stranded[0], int(free.sizes[free.is_stranded].sum())))
            free = free.largest(MOST_FREE)
        seconds = None if self.seconds is None else float(self.seconds[max(row, 0)])
        name = self.name(number)
        return Moment(row, name, tuple(says), state.live_bytes, stranded, seconds), free

    def _in_pools(self, number: int, free: Free) -> list[str]:
        """Say how much of what is held lies in private pools; nothing if none does."""
        held = self.held_at(number)
        sizes = (self.held["end"] - self.held["begin"])[held]
        sums = np.bincount(self.held_pools[held], sizes, minlength=1)[1:].astype(np.int64)
        if not sums.any():
            return []
        said = f"Private pools hold {format_size(int(sums.sum()))}"
        if idle := int(free.sizes[free.pool > 0].sum()):
            said += f", {format_size(idle)} of it free"
        holding = np.flatnonzero(sums).tolist()
        return [f"{said}: {in_pools((self.pools[one], int(sums[one])) for one in holding)}."]

    def _what(self, row: int) -> str:
        if row < 0:
            if not len(self.seen.events):
                return "No events were recorded; this is the end."
            is_peak = row == self.seen.peak.row
            return "The peak: nothing later was higher." if is_peak else "Before the first event."
        event = self.seen.events[row]
        size, kind = int(event["size_bytes"]), int(event["kind"])
        name = self.lines.name(int(self.seen.event_sites[row]))
        asked = f", asked for at {name}" if name else ""
        asked += f", in {pool}" if (pool := self.pool_name(int(event["pool"]))) else ""
        if kind == Kind.OOM:
            return f"Refused: {format_size(size)}{asked}."
        done = _DONE.get(kind, "")
        label = f'the mark "{self.label(row)}"' if kind == Kind.MARK else format_size(size)
        place = f"{self.when(row, len(self.seen.events))}{self._step(row)}"
        if row == self.seen.peak.row:
            return f"The peak, at {place}: {label} came last{asked}."
        owner = ""
        if kind in (Kind.FREE, Kind.FREE_REQUESTED):
            owner = self.owners.names[int(self.owners.of_id[int(event["id"])])]
        said = f"asked for at {owner}" if owner else asked.removeprefix(", ")
        return f"At {place}: {label}{done}{f', {said}' if said else ''}."

    def _how(self, number: int, row: int, state: State) -> str:
        said = f"Live then {format_size(state.live_bytes)}"
        if state.held_bytes is not None:
            said += f", held {format_size(state.held_bytes)}"
            if state.pieces:
                said += f", free in pieces {format_size(state.free_bytes or 0)}"
                largest = format_size(state.largest_bytes or 0)
                said += f" that serve at most {largest}" if state.is_counted else ""
                said += "" if state.is_counted else f", largest piece {largest}"
            else:
                said += ", nothing of it free"
        if row >= 0 and self.seen.events["kind"][row] == Kind.OOM:
            said += f", {format_size(state.left_bytes)} left on the device"
            if state.held_bytes is not None and state.others_bytes:
                said += f". Others have {format_size(state.others_bytes)} of it: CUDA itself, "
                said += "libraries such as NCCL, other processes"
        first, end, sizes = self._lost
        lost_bytes = int(sizes[(first <= number) & (end > number)].sum())
        if lost_bytes and state.held_bytes is not None:
            said += f". {format_size(lost_bytes)} of it lay in memory that was gone at the end: "
            said += "its place is not recorded"
        return f"{said}."

    def _why(self, row: int, free: Free) -> str:
        """Say why a request did not fit: too little memory, or no usable piece."""
        event = self.seen.events[row]
        wanted, left = int(event["size_bytes"]), int(event["address"])
        total = int(free.sizes.sum())
        if left >= wanted:
            return "The device had enough left, so a limit of the program's refused it."
        if total + left < wanted:
            return (
                f"It did not fit: all free memory adds up to {format_size(total + left)}, "
                f"{format_size(wanted - total - left)} too little."
            )
        is_fitting = free.sizes >= wanted
        if self._joins or not is_fitting.any():
            said = f"It did not fit: {format_size(total)} were free, but in "
            said += counted(len(free.sizes), "piece")
            return f"{said}." if self._joins else f"{said}; a request needs one."
        is_right = free.stream == event["stream"]
        is_right &= self._merges | (free.is_small == (wanted <= SMALL_LIMIT))
        is_usable = is_fitting & is_right
        if is_usable.any() and (free.pool[is_usable] != event["pool"]).all():
            pool = self.pool_name(int(free.pool[np.argmax(is_usable)]))
            place = f"in {pool}" if pool else f"outside of {self.pool_name(int(event['pool']))}"
            return f"A piece was large enough, but {place}."
        if is_usable.any():
            return "A piece was large enough; why it was not taken is not recorded."
        return (
            "A piece was large enough, but it is of stream "
            f"{int(free.stream[np.argmax(is_fitting)])}, and this was asked for on stream "
            f"{int(event['stream'])}."
        )

    def _stranded(self, free: Free) -> tuple[Stranded, ...]:
        """Rank the owners that keep free pieces from growing; a piece between two counts twice."""
        piece = np.tile(np.arange(len(free.begin)), 2)
        part = np.concatenate([free.before, free.behind])
        piece, part = piece[part >= 0], part[part >= 0]
        if not len(piece):
            return ()
        lives, block = self.seen.lives, self.places.block[part]
        owner = self.owners.of_id[block]
        count = len(self.owners.names)
        _, once = np.unique(owner * len(free.begin) + piece, return_index=True)
        kept = np.bincount(owner[once], free.sizes[piece[once]], minlength=count)
        pieces = np.bincount(owner[once], minlength=count)
        blocks, which = np.unique(block, return_index=True)
        owner = owner[which]
        held = np.bincount(owner, lives.size_bytes[blocks], minlength=count)
        numbers = np.bincount(owner, minlength=count)
        since = np.full(count, len(self.seen.events), np.int64)
        np.minimum.at(since, owner, lives.born[blocks])
        order = [one for one in np.argsort(-kept, kind="stable")[:MOST_OWNERS] if pieces[one]]
        return tuple(
            Stranded(
                owner=self.owners.name(int(one)),
                kept_bytes=int(kept[one]),
                pieces=int(pieces[one]),
                held_bytes=int(held[one]),
                blocks=int(numbers[one]),
                since=self.when(int(since[one])),
            )
            for one in order
        )

    def label(self, row: int) -> str:
        """Return the name of a mark, shortened."""
        return self.seen.trace.label(int(self.seen.events["id"][row]))[:_LONGEST_LABEL]

    def _step(self, row: int) -> str:
        place = int(np.searchsorted(self._marks, row)) - 1
        return f', after the mark "{self.label(int(self._marks[place]))}"' if place >= 0 else ""


_DONE: Final = {
    int(Kind.ALLOC): " allocated",
    int(Kind.FREE): " freed",
    int(Kind.FREE_REQUESTED): " let go",
    int(Kind.SEGMENT_ALLOC): " taken from the driver",
    int(Kind.SEGMENT_FREE): " given back to the driver",
}


def _note(moments: int, events: int) -> str:
    return (
        f"{moments:,} moments of {events:,} events are prepared: the refusals, the peak, the end, "
        "marks, and of each stretch between the highest and the lowest point"
    )


def counted(number: int, what: str) -> str:
    """Return so many of something in words."""
    return f"one {what}" if number == 1 else f"{number:,} {what}s"


def _most_of_it(first: Stranded, total: int) -> str:
    if not total:
        return ""
    part = f"{format_size(first.kept_bytes)} of the {format_size(total)} in pieces lie"
    part = part if first.kept_bytes < total else f"All {format_size(total)} in pieces lie"
    return (
        f"{part} beside "
        f"{counted(first.blocks, 'block')} of {first.owner}, {format_size(first.held_bytes)} in "
        f"all, the first since {first.since}."
    )


def _at(edges: Integers, wanted: Integers, rows: Integers, is_inside: NDArray[Any]) -> Integers:
    """Return the row whose edge is at each wanted address; -1 for none. edges: ascending."""
    result = np.full(len(wanted), -1, np.int64)
    if len(edges):
        place = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
        is_it = is_inside & (edges[place] == wanted)
        result[is_it] = rows[place[is_it]]
    return result
