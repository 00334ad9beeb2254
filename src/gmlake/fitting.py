"""The smallest device that serves a recording, and the largest batch that fits into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.text import Text

from gmlake.errors import blaming_trace
from gmlake.lake import Lake
from gmlake.printable import printable
from gmlake.refusals import Refusal, others_of, refusals_of
from gmlake.replaying import Requests, choose_policies, roomy_capacity, with_refused
from gmlake.settings import check_knobs
from gmlake.snapshots.situations import Situation, has_refused
from gmlake.snapshots.whole import Source, load
from gmlake.tables import NOT_INCLUDED, WITH_REFUSED, Printed, Tables, new_table, others_in_words
from gmlake.trace.layout import ALIGNMENT, LARGEST_SIZE, Kind, Records
from gmlake.trace.trace import SLICE_EVENTS
from gmlake.units import format_share, format_size, parse_size

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from gmlake.trace import Trace

POLICIES: Final = ("caching", "expandable", "stitch")
"""The default policies: PyTorch's two, and gmlake's."""

GRANULE_BYTES: Final = 2 << 20
"""Devices are tried in steps of this: the driver hands out no less."""

MOST_BATCH: Final = 1 << 31

LEAST_MATCHED: Final = 0.9
"""The share of the requests that two recordings must have in common to extrapolate from them."""

_ANCHOR: Final = 24  # requests that must be alike for two recordings to go on together
_WINDOW: Final = 64  # requests of either that may be passed over until then


@dataclass(frozen=True)
class Need:
    """What one policy needs for one recording. Sizes in bytes.

    pooled_live_bytes: of those live at the peak, the bytes in private pools.
    smallest_bytes: a device of this size serves every request; a device smaller by GRANULE_BYTES
    does not. is_served: whether the device asked about does; None if none was. others_bytes: what
    neither PyTorch held nor was left when the recording was made; 0 if it does not tell.
    has_refused: PyTorch refused a request, which counts here.
    """

    trace: str
    policy: str
    peak_live_bytes: int
    smallest_bytes: int
    is_served: bool | None = None
    pooled_live_bytes: int = 0
    others_bytes: int = 0
    has_refused: bool = False


@dataclass(frozen=True)
class Largest:
    """The largest batch that a policy serves on the device; 0: not even one.

    is_line: it was read off a line through the needs of both recordings, since their requests do
    not match, rather than replayed.
    """

    policy: str
    batch: int
    is_line: bool


@dataclass(frozen=True)
class FitReport(Printed):
    """The result of gmlake.fit(); prints as an answer and a table.

    memory_bytes: the device asked about; 0: none. refused: the number of requests PyTorch refused
    in the recordings; they count as if they had been served for a moment. refusals: the last one of
    each recording. why_line: if memory was extrapolated, the event at which the recordings differ.
    """

    needs: tuple[Need, ...]
    memory_bytes: int = 0
    batches: tuple[int, ...] = ()
    largest: tuple[Largest, ...] = ()
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()
    why_line: str = ""
    knobs: dict[str, int | str] = field(default_factory=dict)

    @property
    def _recordings(self) -> list[tuple[Need, ...]]:
        """The needs of each recording; two may have the same name."""
        policies = len({need.policy for need in self.needs})
        starts = range(0, len(self.needs), policies or 1)
        return [self.needs[start : start + policies] for start in starts]

    @property
    def fits(self) -> bool:
        """Whether the device asked about serves each recording, or a batch, with some policy."""
        if self.largest:
            return any(one.batch for one in self.largest)
        return all(any(need.is_served for need in needs) for needs in self._recordings)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure, as `gmlake fit --json` prints it."""
        refusals = [refusal.to_dict() for refusal in self.refusals]
        return asdict(replace(self, refusals=())) | {"refusals": refusals}

    def _tables(self) -> Tables:
        yield from self._answers()
        for needs in self._recordings:
            live, pooled = needs[0].peak_live_bytes, needs[0].pooled_live_bytes
            said = f"{printable(needs[0].trace)}: {format_size(live)} live at the peak"
            said += WITH_REFUSED if needs[0].has_refused else ""
            if pooled:
                said += f", of these {format_size(pooled)} in private pools"
            yield Text(said, "bold")
            yield self._table(needs)
        for refusal in self.refusals:
            yield from map(Text, refusal.sentences())
        if self.refused:
            what = "a request" if self.refused == 1 else f"{self.refused:,} requests"
            yield Text(
                f"at least: the recording has {what} that PyTorch refused, and what the program "
                "would have done with it is not known"
            )
        yield Text(NOT_INCLUDED, "dim")
        for needs in self._recordings:
            if needs[0].others_bytes:
                yield Text(self._with_others(needs))

    def _answers(self) -> Tables:
        if not self.memory_bytes:
            return
        within = format_size(self.memory_bytes)
        if self.largest:
            said = ", ".join(f"{one.batch:,} with {one.policy}" for one in self.largest)
            yield Text(f"the largest batch that fits into {within}: {said}", "bold")
            yield Text(f"({self._basis()})")
            return
        for needs in self._recordings:
            yes = [need.policy for need in needs if need.is_served]
            no = [need.policy for need in needs if not need.is_served]
            if yes:
                yield Text(f"yes, it fits into {within} with: {', '.join(yes)}", "green")
            if no:
                yield Text(f"no, it does not fit into {within} with: {', '.join(no)}", "red")

    def _with_others(self, needs: tuple[Need, ...]) -> str:
        """Add what others had to what PyTorch needs."""
        others = needs[0].others_bytes
        said = f"{others_in_words(others)}; with that much of it "
        if self.largest:
            left = max(self.memory_bytes - others, 0)
            return f"{said}{format_size(left)} of {format_size(self.memory_bytes)} are PyTorch's"
        if not self.memory_bytes:
            each = (f"{format_size(one.smallest_bytes + others)} ({one.policy})" for one in needs)
            return f"{said}the smallest device has {', '.join(each)}"
        fits = [one for one in needs if one.smallest_bytes + others <= self.memory_bytes]
        names = ", ".join(one.policy for one in fits) or "none of them"
        return f"{said}it fits into {format_size(self.memory_bytes)} with: {names}"

    def _basis(self) -> str:
        small, large = self.batches
        if self.why_line:
            return (
                f"extrapolated from the memory of batches {small:,} and {large:,}, which is rough: "
                f"{self.why_line}"
            )
        return f"each request extrapolated from batches {small:,} and {large:,}, and replayed"

    def _table(self, needs: tuple[Need, ...]) -> RenderableType:
        table = new_table(None, "policy", "smallest\ndevice", "above what\nis live")
        for need in needs:
            above = need.smallest_bytes / need.peak_live_bytes - 1 if need.peak_live_bytes else 0.0
            table.add_row(need.policy, format_size(need.smallest_bytes), format_share(above))
        return table


def fit(
    recordings: Source | Sequence[Source],
    memory: int | str | None = None,
    batches: Sequence[int] | None = None,
    policies: str | Sequence[str] = POLICIES,
    *,
    progress: Callable[[str], None] | None = None,
    **knobs: int | str,
) -> FitReport:
    """Find the smallest device for a recording under each policy, or the largest batch that fits.

    recordings: one or several, each as gmlake.load() takes it.
    memory: the size of a device, in bytes or as text: whether it serves each recording.
    batches: of two recordings of one program that differ in nothing else; with `memory`, the
        largest batch that fits. Each request is extrapolated from its two sizes and replayed. If
        the requests of the two do not match, the memory needed by each is extrapolated instead.
    progress: called with a few words before each recording and policy.

    Raises TraceError for a recording that contradicts itself, ValueError for a wrong argument.
    """
    several: Any = recordings if isinstance(recordings, (list, tuple)) else [recordings]
    given = [seen.trace for one in several for seen in load(one)]
    chosen = choose_policies(policies)
    check_knobs(knobs)
    memory_bytes = parse_size(memory) if memory is not None else 0
    _check_batches(given, batches, memory_bytes)
    for trace in given:
        trace.check()
    asked = [with_refused(trace) for trace in given]
    needs = []
    for recorded, trace in zip(given, asked, strict=True):
        requests, others = Requests(trace), others_of(recorded)
        for policy in chosen:
            if progress is not None:
                progress(f"{trace.name}: {policy}")
            with blaming_trace():
                need = _need(requests, policy, memory_bytes, knobs)
            need = _as_recorded(need, recorded, memory_bytes)
            has_refused = len(trace.requests) > len(recorded.requests)
            needs.append(replace(need, others_bytes=others, has_refused=has_refused))
    report = FitReport(
        tuple(needs),
        memory_bytes,
        refused=sum(int((trace.requests["kind"] == Kind.OOM).sum()) for trace in given),
        refusals=tuple(last for trace in given for last in refusals_of(trace, slice(-1, None))),
        knobs=dict(knobs),
    )
    if batches is None:
        return report
    return _with_batches(report, asked, (batches[0], batches[1]), chosen)


def _check_batches(traces: list[Trace], batches: Sequence[int] | None, memory_bytes: int) -> None:
    if batches is None:
        return
    if len(traces) != 2 or len(batches) != 2:  # noqa: PLR2004
        raise ValueError("the largest batch needs two recordings, and the batch of each")
    if not memory_bytes:
        raise ValueError("the largest batch for which memory? Give the size of the device")
    if min(batches) < 1 or max(batches) > MOST_BATCH or batches[0] == batches[1]:
        raise ValueError(
            f"two different batches from 1 to {MOST_BATCH:,} are needed, not {list(batches)}"
        )


# ---- one recording


def _is_served(requests: Requests, policy: str, capacity: int, knobs: dict[str, Any]) -> bool:
    with Lake("sim", policy, capacity, **knobs) as lake:
        totals, _, _ = requests.replay(lake, policy)
        return totals["refused"] == 0


def _need(requests: Requests, policy: str, memory_bytes: int, knobs: dict[str, Any]) -> Need:
    trace = requests.trace
    live_bytes = trace.peak_live_bytes
    capacity = roomy_capacity(trace)
    with Lake("sim", policy, capacity, **knobs) as lake:
        totals, _, _ = requests.replay(lake, policy)
    if totals["refused"]:
        raise ValueError(f"more than {format_size(capacity)} are live; no device has that")
    enough = _up(totals["peak_reserved_bytes"])
    while not _is_served(requests, policy, enough, knobs):
        enough += _up(enough // 32)  # some policies spend more where they know of an end
    too_small = max(_up(live_bytes), GRANULE_BYTES) - GRANULE_BYTES
    while enough - too_small > GRANULE_BYTES:
        middle = _up((enough + too_small) // 2)
        if _is_served(requests, policy, middle, knobs):
            enough = middle
        else:
            too_small = middle
    is_served = _is_served(requests, policy, memory_bytes, knobs) if memory_bytes else None
    return Need(trace.name, policy, live_bytes, enough, is_served, trace.pooled_live_bytes)


def _as_recorded(need: Need, trace: Trace, memory_bytes: int) -> Need:
    """Return what contradicts no refusal by the same policy in the recording."""
    is_served = need.is_served and not has_refused(trace, need.policy, memory_bytes)
    smallest_bytes = need.smallest_bytes
    if has_refused(trace, need.policy, smallest_bytes):
        capacity_bytes = Situation(trace.refusal).capacity_bytes
        smallest_bytes = capacity_bytes // GRANULE_BYTES * GRANULE_BYTES + GRANULE_BYTES
    return replace(need, is_served=is_served, smallest_bytes=smallest_bytes)


def _up(size_bytes: int) -> int:
    return max(1, -(-size_bytes // GRANULE_BYTES)) * GRANULE_BYTES


# ---- two recordings


def _with_batches(
    report: FitReport, traces: list[Trace], batches: tuple[int, int], policies: Sequence[str]
) -> FitReport:
    needs = [report.needs[: len(policies)], report.needs[len(policies) :]]
    if batches[0] > batches[1]:
        batches, traces, needs = (batches[1], batches[0]), traces[::-1], needs[::-1]
    memory_bytes, largest = report.memory_bytes, []
    scaled, why_line = None, ""
    try:
        scaled = Scaled(traces[0], traces[1], batches)
    except _NoMatchError as error:
        why_line = str(error)
    for policy, small, large in zip(policies, *needs, strict=True):
        if scaled is not None:
            batch = _largest(scaled, policy, memory_bytes, report.knobs)
        else:
            batch = _on_a_line(small.smallest_bytes, large.smallest_bytes, batches, memory_bytes)
        largest.append(Largest(policy, batch, scaled is None))
    return replace(report, batches=batches, largest=tuple(largest), why_line=why_line)


class _NoMatchError(Exception):
    """Two recordings whose requests do not match; the text says where they part."""


class Scaled:
    """A program's requests at any batch: each size extrapolated linearly from two recordings.

    The frees and their times are those of the larger batch. A few requests that only it has, as
    those of a kernel for large sizes only, grow as the batch does.
    """

    def __init__(self, small: Trace, large: Trace, batches: tuple[int, int]) -> None:
        """Match the requests of both, which may be recordings of other numbers of steps.

        Raises _NoMatchError if the programs made different requests.
        """
        if len(small.start_blocks) != len(large.start_blocks):
            raise _NoMatchError("they began with different numbers of tensors")
        self._batches = batches
        is_plain = ~np.isin(large.requests["kind"], (Kind.FREE_REQUESTED, Kind.OOM))
        self._large = replace(large, requests=large.requests[is_plain])
        self._rows = np.flatnonzero(self._large.requests["kind"] == Kind.ALLOC)
        ours = small.requests[small.requests["kind"] == Kind.ALLOC]
        others = self._large.requests[self._rows]
        pairs, others_end = _matched(ours, others, batches)
        if len(pairs) < LEAST_MATCHED * others_end:
            raise _NoMatchError(
                f"of {others_end:,} requests of the larger batch, only {len(pairs):,} are also in "
                "the other recording"
            )
        if others_end < len(others):
            self._large.requests = self._large.requests[: self._rows[others_end]]
            self._rows = self._rows[:others_end]
        grown = others["size_bytes"][:others_end].astype(np.float64) * (batches[0] / batches[1])
        grown[pairs[:, 1]] = ours["size_bytes"][pairs[:, 0]]
        self._sizes = grown
        self._start = _start_order(large)
        self._start_sizes = small.start_blocks["requested_bytes"][_start_order(small)]

    def at(self, batch: int) -> Trace:
        """Return the requests for a batch."""
        requests, start = self._large.requests.copy(), self._large.start_blocks.copy()
        sizes = requests["size_bytes"]
        sizes[self._rows] = self._drawn(self._sizes, sizes[self._rows], batch)
        sizes = start["requested_bytes"]
        sizes[self._start] = self._drawn(self._start_sizes, sizes[self._start], batch)
        return replace(self._large, requests=requests, start_blocks=start)

    def _drawn(self, small: Records, large: Records, batch: int) -> NDArray[np.uint64]:
        first, second = self._batches
        growth = (large.astype(np.float64) - small) / (second - first)
        sizes = np.ceil(small + growth * (batch - first))
        sizes = np.clip(sizes, np.minimum(1, np.minimum(small, large)), LARGEST_SIZE)
        drawn: NDArray[np.uint64] = sizes.astype(np.uint64)
        return drawn


def _matched(
    small: Records, large: Records, batches: tuple[int, int]
) -> tuple[NDArray[np.int64], int]:
    """Return pairs of requests that differ only in the batch, and how many of `large` count.

    Two are alike where the size of the larger batch lies between that of the other and as many
    times that as the batch is larger. Where the next two are not alike, the nearest place is taken
    from which on _ANCHOR of them are. The rest of the longer recording counts for nothing.
    """
    sizes = small["size_bytes"].astype(np.float64), large["size_bytes"].astype(np.float64)
    ratio = batches[1] / batches[0]

    def alike(i: int, j: int, count: int) -> NDArray[np.bool_]:
        ours, others = sizes[0][i : i + count], sizes[1][j : j + count]
        length = min(len(ours), len(others))
        ours, others = ours[:length], others[:length]
        return (ours <= others) & (others <= ours * ratio + ALIGNMENT)

    def resumed(i: int, j: int) -> tuple[int, int]:
        for skipped in range(1, 2 * _WINDOW):
            for mine in range(max(0, skipped - _WINDOW), min(skipped, _WINDOW) + 1):
                place = i + mine, j + skipped - mine
                if len(found := alike(*place, _ANCHOR)) and found.all():
                    return place
        return len(small), len(large)

    i = j = 0
    parts = [np.zeros((0, 2), np.int64)]
    while i < len(small) and j < len(large):
        found = alike(i, j, SLICE_EVENTS)
        count = len(found) if found.all() else int(np.argmin(found))
        run = np.arange(count)
        parts.append(np.stack([i + run, j + run], axis=1))
        i, j = i + count, j + count
        if count < len(found):
            i, j = resumed(i, j)
    return np.concatenate(parts), j


def _start_order(trace: Trace) -> NDArray[np.int64]:
    """Return the blocks from before: those that end as they end, then the others by size."""
    start, frees = trace.start_blocks, np.flatnonzero(trace.requests["kind"] == Kind.FREE)
    ends = np.full(max(trace.id_count, 1), len(trace.requests), np.int64)
    ends[trace.requests["id"][frees]] = frees
    keys = (start["address"], start["requested_bytes"], ends[start["id"]])
    order: NDArray[np.int64] = np.lexsort(keys)
    return order


def _largest(scaled: Scaled, policy: str, memory_bytes: int, knobs: dict[str, Any]) -> int:
    """Return the largest batch that is served; one with too much live memory is not replayed."""

    def has_room(batch: int) -> bool:
        return scaled.at(batch).peak_live_bytes <= memory_bytes

    def is_served(batch: int) -> bool:
        return _is_served(Requests(scaled.at(batch)), policy, memory_bytes, knobs)

    beyond = 1
    while beyond <= MOST_BATCH and has_room(beyond):
        beyond *= 2
    if beyond > MOST_BATCH:
        raise ValueError("both recordings need the same memory, so a larger batch needs no more")
    return last(is_served, last(has_room, beyond) + 1)


def last(holds: Callable[[int], bool], beyond: int) -> int:
    """Return the last number below `beyond` for which it holds, from where on it does not; 0."""
    good = 0
    while beyond - good > 1:
        middle = (good + beyond) // 2
        if holds(middle):
            good = middle
        else:
            beyond = middle
    return good


def _on_a_line(small: int, large: int, batches: tuple[int, int], memory_bytes: int) -> int:
    if large <= small:
        raise ValueError("the recording of the larger batch needs no more memory than the other")
    first, second = batches
    return max(0, first + (memory_bytes - small) * (second - first) // (large - small))
