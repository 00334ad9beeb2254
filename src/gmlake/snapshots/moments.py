"""Moments of a recording: the state of memory, why a request did not fit, what strands memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import Moment, Moments, Numbers, Stranded
from gmlake.snapshots.classes import BEFORE_RECORDING, Owners
from gmlake.snapshots.held import Places, held_over, places_of
from gmlake.snapshots.model import DeviceSnapshot, fragmentation_of
from gmlake.snapshots.peaks import BEFORE
from gmlake.snapshots.pool_names import PrivatePool, in_pools, private_pools
from gmlake.snapshots.situations import Situation, computed, told
from gmlake.trace.layout import SMALL_LIMIT, SMALL_SEGMENT, Kind, SpanKind
from gmlake.trace.trace import STEP_ENDS
from gmlake.units import format_size, format_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
_MOST_NAMES: Final = 3  # of what the program named, one within another
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

    def of_pool(self, number: int) -> Free:
        """Return the pieces of a private pool; 0: those outside of all."""
        chosen = self.pool == number
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
    so itself; else it is the largest piece. situation: of a refusal: why, whose figures these are.
    """

    live_bytes: int
    held_bytes: int | None = None
    free_bytes: int | None = None
    pieces: int | None = None
    largest_bytes: int | None = None
    is_counted: bool = False
    situation: Situation | None = None

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
        self.owners = Owners(seen, lines, {int(rows[self.shown]), seen.peak.row})
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
    def joins(self) -> bool:
        """Whether a request may be served by pieces that are not adjacent."""
        return bool((self.seen.spans["kind"] == SpanKind.BASE).any())

    @cached_property
    def merges(self) -> bool:
        """Whether a piece may extend into the next range reserved from the driver."""
        return self.seen.trace.is_expandable or self.joins

    @cached_property
    def _sorted_parts(self) -> tuple[Integers, Short, Short]:
        """Rows of Places live at any moment, by address: their first moment, and their end."""
        block = self.places.block
        first, end = self.first[block], self.end[block]
        chosen = np.flatnonzero(first < end)
        chosen = chosen[np.argsort(self.places.begin[chosen], kind="stable")]
        return chosen, first[chosen], end[chosen]

    @cached_property
    def _lost_bytes(self) -> Integers:
        """What is live at each moment in blocks whose place is not recorded."""
        lost, count = self.places.lost, len(self.rows) + 1
        sizes = self.seen.lives.size_bytes[lost]
        came = np.bincount(self.first[lost], sizes, minlength=count)
        went = np.bincount(self.end[lost], sizes, minlength=count)
        return np.cumsum(came - went).astype(np.int64)

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
        """Return the rows of `places` live and awake at a moment, by address, without overlaps."""
        chosen, is_awake = self._live_parts(moment)
        chosen = chosen[is_awake]
        begin, reach = self.places.begin[chosen], np.maximum.accumulate(self.places.end[chosen])
        is_clear = np.concatenate([[True], begin[1:] >= reach[:-1]])[: len(chosen)]
        result: Integers = chosen[is_clear]
        return result

    def _live_parts(self, moment: int) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the rows of `places` live at a moment, and which of them are not asleep.

        Memory that slept is held again in a range that was made since.
        """
        part, first, end = self._sorted_parts
        chosen: Integers = part[(first <= moment) & (end > moment)]
        is_awake: NDArray[np.bool_] = self.held_moments[1][self.places.held[chosen]] > moment
        if not is_awake.all():
            held = self.held[self.held_at(moment)]
            place = np.searchsorted(held["begin"], self.places.end[chosen]) - 1
            is_awake |= self.places.begin[chosen] < np.append(held["end"], 0)[place]
        return chosen, is_awake

    def _asleep(self, moment: int) -> str:
        """Say how much of what is live sleeps; "" if nothing does."""
        part, is_awake = self._live_parts(moment)
        part = part[~is_awake]
        size = int((self.places.end[part] - self.places.begin[part]).sum())
        return f" {format_size(size)} of what is live sleeps, and is not held." if size else ""

    def free_at(self, moment: int) -> Free:
        """Return the free pieces. A rest that PyTorch cannot split off a block is part of it."""
        held, parts = self.held_at(moment), self.parts_at(moment)
        low, high = self.held["begin"][held], self.held["end"][held]
        is_new = np.concatenate([[True], low[1:] != high[:-1]])[: len(low)]
        if not self.merges:
            is_new[1:] |= np.diff(self.held["range"][held]) != 0
        is_last = np.concatenate([is_new[1:], [True]])[: len(low)]
        held, low, high = held[is_new], low[is_new], high[is_last]
        begins, ends = self.places.begin[parts], self.places.end[parts]
        # A gap before each block, and one behind the last of each range.
        first = np.searchsorted(begins, low)
        count = np.diff(first, append=len(parts))
        where = np.repeat(np.arange(len(held)), count + 1)
        is_behind = np.ones(len(where), np.bool_)
        starts = first + np.arange(len(held))
        is_behind[starts] = False
        is_before = np.append(is_behind[1:], False)[: len(where)]
        free_begin, free_end = low[where], high[where]
        before, behind = np.full((2, len(where)), -1)
        free_begin[is_behind], before[is_behind] = ends, parts
        free_end[is_before], behind[is_before] = begins, parts
        is_small = (high - low)[where] == SMALL_SEGMENT
        sizes = free_end - free_begin
        is_slack = (sizes <= SMALL_LIMIT) & (before >= 0) & ~is_small
        kept = np.flatnonzero((sizes > 0) & (~is_slack | self.merges))
        where = held[where[kept]]
        return Free(
            begin=free_begin[kept],
            end=free_end[kept],
            before=before[kept],
            behind=behind[kept],
            stream=self.held["stream"][where],
            is_small=is_small[kept],
            pool=self.held_pools[where],
        )

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
        if row < 0 or seen.events["kind"][row] != Kind.OOM or state.held_bytes is None:
            return state
        free = self.free_at(moment) if free is None else free
        why = told(self, row) or computed(self, moment, row, free)
        return State(
            live_bytes,
            why.held_bytes,
            why["idle_bytes"],
            why["pieces"] or None,
            why["largest_bytes"],
            is_counted=True,
            situation=why,
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
        says = self._says(number, row, state)
        says[-1] += self._asleep(number) if free is not None else ""
        stranded: tuple[Stranded, ...] = ()
        if free is not None:
            usable = free.of_pool(int(self.seen.events["pool"][row])) if state.situation else free
            stranded = self._stranded(usable)
        if most := self.owners.held_in_words(self.live_at(number), row):
            says.append(most)
        if free is not None and self.pools:
            says += self._in_pools(number, free)
        if free is not None:
            if stranded:
                says.append(_most_of_it(stranded[0], int(usable.sizes[usable.is_stranded].sum())))
            free = free.largest(MOST_FREE)
        seconds = None if self.seconds is None else float(self.seconds[max(row, 0)])
        name = self.name(number)
        return Moment(row, name, tuple(says), state.live_bytes, stranded, seconds), free

    def _says(self, number: int, row: int, state: State) -> list[str]:
        """Say what happened; of a refusal the verdict comes first, then the figures."""
        if state.situation is None:
            return [f"{self._what(row)} {self._how(number, state)}"]
        what = self._what(row).removesuffix(".")
        return [f"{what}: {state.situation.verdict}", state.situation.figures + self._gone(number)]

    def _in_pools(self, number: int, free: Free) -> list[str]:
        """Say how much of what is held lies in private pools; nothing if none does."""
        held = self.held_at(number)
        sizes = (self.held["end"] - self.held["begin"])[held]
        sums = np.bincount(self.held_pools[held], sizes, minlength=1)[1:].astype(np.int64)
        if not sums.any():
            return []
        regions = sum(pool.kind == "region" for pool in self.pools)
        who = "Regions and private pools" if regions else "Private pools"
        who = "Regions" if regions == len(self.pools) else who
        said = f"{who} hold {format_size(int(sums.sum()))}"
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
            return f"Refused: {format_size(size)}{asked}{self._inside(row)}."
        done = _DONE.get(kind, "")
        label = f'the mark "{self.label(row)}"' if kind == Kind.MARK else format_size(size)
        place = f"{self.when(row, len(self.seen.events))}{self._place(row)}"
        if row == self.seen.peak.row:
            return f"The peak, at {place}: {label} came last{asked}."
        owner = ""
        if kind in (Kind.FREE, Kind.FREE_REQUESTED):
            owner = self.owners.names[int(self.owners.of_id[int(event["id"])])]
        said = f"asked for at {owner}" if owner else asked.removeprefix(", ")
        return f"At {place}: {label}{done}{f', {said}' if said else ''}."

    def _how(self, number: int, state: State) -> str:
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
            return f"{said}.{self._gone(number)}"
        return f"{said}."

    def _gone(self, number: int) -> str:
        """Say how much of what was live has no place in the recording; "" if all has."""
        lost_bytes = int(self._lost_bytes[number])
        if not lost_bytes:
            return ""
        return (
            f" {format_size(lost_bytes)} of it lay in memory that was gone at the end: its place "
            "is not recorded."
        )

    def _stranded(self, free: Free) -> tuple[Stranded, ...]:
        """Rank the owners that keep free pieces from growing; a piece between two counts twice."""
        part = np.stack([free.before, free.behind], axis=1).ravel()
        part = part[part >= 0]
        if not len(part):
            return ()
        count, sizes = len(self.owners.names), free.sizes
        left, right = self._owners_of_parts[free.before], self._owners_of_parts[free.behind]
        right[right == left] = 0
        kept, pieces = np.zeros((2, count + 1), np.int64)
        for owner in (left, right):
            kept += np.bincount(owner, sizes, minlength=count + 1).astype(np.int64)
            pieces += np.bincount(owner, minlength=count + 1)
        kept, pieces = kept[1:], pieces[1:]
        part = part[np.concatenate([[True], part[1:] != part[:-1]])]
        block = self.places.block[part]
        block = np.unique(block) if self._has_split else block
        owner = self.owners.of_id[block]
        held = np.bincount(owner, self.seen.lives.size_bytes[block], minlength=count)
        numbers = np.bincount(owner, minlength=count)
        born = self.seen.lives.born[block]
        order = [one for one in np.argsort(-kept, kind="stable")[:MOST_OWNERS] if pieces[one]]
        return tuple(
            Stranded(
                owner=self.owners.name(int(one)),
                kept_bytes=int(kept[one]),
                pieces=int(pieces[one]),
                held_bytes=int(held[one]),
                blocks=int(numbers[one]),
                since=self.when(int(born[owner == one].min())),
            )
            for one in order
        )

    @cached_property
    def _owners_of_parts(self) -> Integers:
        """1 + the owner of each row of Places, and 0 behind them, for -1."""
        return np.append(self.owners.of_id[self.places.block] + 1, 0)

    @cached_property
    def _has_split(self) -> bool:
        """Whether a block lies in several parts, which are in a view."""
        return bool((self.places.block[1:] == self.places.block[:-1]).any())

    def label(self, row: int) -> str:
        """Return the name of a mark, shortened."""
        return self.seen.trace.label(int(self.seen.events["id"][row]))[:_LONGEST_LABEL]

    def _place(self, row: int) -> str:
        """Say in what the program named an event was, and between which steps."""
        return f"{self._inside(row)}{self._between(row)}"

    def _inside(self, row: int) -> str:
        """Say it by the program's own names, the outermost first."""
        time, named = int(self.seen.events["time_ns"][row]), self.seen.trace.named
        begins, ends = self._named_times
        around: list[int] = []
        for one in np.flatnonzero((begins <= time) & (ends >= time)).tolist() if time else ():
            if not around or ends[one] <= ends[around[-1]]:
                around.append(one)  # within the one before, not another thread's
        names = [f'"{named[one][2]}"' for one in around[-_MOST_NAMES:]]
        return f", in {' > '.join(names)}" if names else ""

    @cached_property
    def _named_times(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        times = [one[:2] for one in self.seen.trace.named]
        begins, ends = np.array(times, np.uint64).reshape(-1, 2).T
        return begins, ends

    def _between(self, row: int) -> str:
        """Say between which marks, of which those of PyTorch are the ends of steps."""
        place = int(np.searchsorted(self._marks, row))
        before, behind = (
            self.label(int(self._marks[number])) if 0 <= number < len(self._marks) else ""
            for number in (place - 1, place)
        )
        if before and not before.startswith(STEP_ENDS):
            return f', after the mark "{before}"'
        kind = "optimizer step" if (before or behind).startswith(STEP_ENDS[1]) else "step"
        last, following = (
            f"{number + 1:,}" if label.startswith(STEP_ENDS[1]) else label.partition("#")[2]
            for number, label in ((place - 1, before), (place, behind))
        )
        if before and behind:
            return f", between the ends of {kind}s {last} and {following}"
        if before:
            return f", after the end of {kind} {last}, the last"
        return f", before the end of {kind} {following}, the first" if following else ""


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
    since = "" if first.since == BEFORE_RECORDING else f", the first since {first.since}"
    return (
        f"{part} beside "
        f"{counted(first.blocks, 'block')} of {first.owner}, {format_size(first.held_bytes)} in "
        f"all{since}."
    )
