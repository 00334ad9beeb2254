"""A diagnosis as a page: its calls, the objects at the peaks, and what to change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from gmlake.diagnosis.object_layout import NO_API, READS, TOUCHES, WRITES
from gmlake.diagnosis.pictures.calls_picture import Calls
from gmlake.diagnosis.pictures.lifelines import Lifeline, Lifelines
from gmlake.diagnosis.pictures.touched import Touched
from gmlake.diagnosis.report import fixed_bytes, others
from gmlake.diagnosis.words import INSIDE, WASTED, Pattern, colours
from gmlake.pictures.figures import Figure, Mark, OwnFigure, Report, Timeline
from gmlake.snapshots.figures_of import turning_points
from gmlake.snapshots.frames import named_frame
from gmlake.trace.layout import Records
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.diagnosis.advice import Advice
    from gmlake.diagnosis.detect import Diagnosis
    from gmlake.diagnosis.findings import Group


@dataclass(frozen=True)
class FoundRow:
    """One thing to change, or `count` alike. frames: a call path, as of a Block.

    saving_bytes: how much it lowers the peak alone. peak_bytes: the peak with it and with those in
    the rows before it; None if the lowest peak does not need it.
    """

    pattern: str
    object_name: str
    size_bytes: int
    saving_bytes: int
    distance: int
    change: str
    frames: tuple[str, ...] = ()
    count: int = 1
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Found(OwnFigure):
    """The changes: those that lower the peak, one after another, and then the others."""

    rows: tuple[FoundRow, ...]
    colours: Mapping[str, str] = field(default_factory=dict)
    template: ClassVar[str] = "diagnosis/pictures/found.html"


MOST_CALLS: Final = 6000
"""Rectangles of calls that are drawn; more calls share one with their neighbours of a kind."""

MOST_OBJECTS: Final = 60
"""Objects of the peaks that are drawn, the largest."""

MOST_ROWS: Final = 1000
"""Rows of the table of findings."""

MOST_INSIDE: Final = 3
"""Objects whose bytes are drawn, those with findings about their insides."""

_MOST_MARKS: Final = 400  # accesses of one object that are drawn
_MOST_CALL_ROWS: Final = 40  # calls of one object whose bytes are drawn
_MOST_RUNS: Final = 256  # of one access; of more, every so many are drawn
_MOST_WEIGHT: Final = 2**63 - 1  # that a picture's numbers hold


def report_of_diagnosis(diagnosis: Diagnosis) -> Report:
    """Return the page of a diagnosis: the paper's three panes, under live bytes over calls."""
    name = diagnosis.trace.name or "trace"
    figures: tuple[Figure, ...] = (
        _live_over_calls(diagnosis),
        _calls(diagnosis),
        _lifelines(diagnosis),
        *_insides(diagnosis),
        _found(diagnosis),
    )
    return Report(f"What wastes memory in {name}", tuple(_facts(diagnosis)), figures)


def _facts(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    yield "live at the peak", format_size(diagnosis.peak_bytes)
    fixed = fixed_bytes(diagnosis)
    if fixed is not None:
        yield "with the changes below", format_size(fixed)
    yield "findings", f"{len(diagnosis.records):,}"
    yield "calls", f"{len(diagnosis.trace.apis):,}"
    yield "objects", f"{len(diagnosis.trace.objects):,}"


# ---- live bytes


def _live_bytes(diagnosis: Diagnosis) -> Records:
    """Return the sum of live objects after each call, in order of invocation."""
    trace, lives = diagnosis.trace, diagnosis.lives
    change = np.zeros(len(trace.apis), np.int64)
    sizes = trace.objects["size_bytes"].astype(np.int64)
    born, died = lives["alloc"] != NO_API, lives["free"] != NO_API
    np.add.at(change, lives["alloc"][born].astype(np.int64), sizes[born])
    np.add.at(change, lives["free"][died].astype(np.int64), -sizes[died])
    live: Records = int(sizes[~born].sum()) + np.cumsum(change)
    return live


def _live_over_calls(diagnosis: Diagnosis) -> Timeline:
    live = _live_bytes(diagnosis)
    chosen, stretch = turning_points(live)
    marks = tuple(_peak_marks(diagnosis, by_time=False))
    note = f"each stretch of {stretch} calls is drawn as its highest and lowest point"
    return Timeline(
        "live bytes",
        chosen.astype(np.float64),
        {"live": live[chosen].astype(np.float64)},
        None,
        marks,
        note if stretch > 1 else "",
        "calls",
    )


def _peak_marks(diagnosis: Diagnosis, *, by_time: bool) -> Iterator[Mark]:
    for number, peak in enumerate(diagnosis.peaks, start=1):
        at = float(diagnosis.times[peak.call.api]) if by_time else float(peak.call.api)
        yield Mark(at, "peak", f"Peak {number}: {format_size(peak.bytes)} after {peak.call.label}")


# ---- calls


def _calls(diagnosis: Diagnosis) -> Calls:
    trace = diagnosis.trace
    times = diagnosis.times.astype(np.int64)
    streams, lane = np.unique(trace.apis["stream"], return_inverse=True)
    kind = trace.apis["kind"].astype(np.int64)
    span = int(diagnosis.end_time)
    width = max(1, -(-span * len(streams) * 3 // MOST_CALLS)) if len(times) > MOST_CALLS else 1
    key = (times // width * len(streams) + lane) * 8 + kind
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    chosen = np.sort(first)
    count = count[np.argsort(first, kind="stable")]
    begin = (times[chosen] // width * width).astype(np.float64)
    # Kinds of one stretch lie side by side in it.
    begin += width * kind[chosen] / 8 if width > 1 else 0
    end = begin + (width / 8 if width > 1 else 1)
    labels = [
        trace.label(api) if n == 1 else f"{trace.label(api)} and {n - 1:,} more"
        for api, n in zip(chosen.tolist(), count.tolist(), strict=True)
    ]
    note = f"{width} calls in a row share a place, a rectangle for each kind" if width > 1 else ""
    return Calls(
        "calls in the order of their dependencies",
        begin,
        end,
        lane[chosen].astype(np.int32),
        kind[chosen].astype(np.int32),
        count.astype(np.int64),
        tuple(labels),
        tuple(f"stream {stream}" for stream in streams.tolist()),
        tuple(_peak_marks(diagnosis, by_time=True)),
        note=note,
    )


# ---- objects


def _lifelines(diagnosis: Diagnosis) -> Lifelines:
    trace, lives = diagnosis.trace, diagnosis.lives
    at_peaks = np.flatnonzero(lives["peaks"])
    sizes = trace.objects["size_bytes"][at_peaks]
    chosen = at_peaks[np.argsort(-sizes.astype(np.int64), kind="stable")[:MOST_OBJECTS]]
    accesses = _accesses(diagnosis, chosen)
    wasted = _wasted(diagnosis, chosen)
    rows = []
    for one in chosen.tolist():
        begin, end = _ends_of(diagnosis, one)
        rows.append(
            Lifeline(
                trace.object_name(one),
                int(trace.objects["size_bytes"][one]),
                begin,
                end,
                tuple(accesses[one]),
                tuple(wasted[one]),
                _made_at(diagnosis, one),
            )
        )
    left_out = len(at_peaks) - len(chosen)
    note = f"{left_out:,} smaller objects at the peaks are not drawn" if left_out else ""
    count = len(diagnosis.peaks)
    title = f"objects at the {count} highest peaks" if count > 1 else "objects at the peak"
    return Lifelines(title, tuple(rows), colours(), note=note)


def _made_at(diagnosis: Diagnosis, one: int) -> str:
    place = diagnosis.trace.object_place(one)
    return named_frame(place.frames) or place.scope


def _ends_of(diagnosis: Diagnosis, one: int) -> tuple[float, float]:
    """Return when an object is allocated and freed, in times of the trace."""
    life = diagnosis.lives[one]
    last = diagnosis.end_time
    begin = 0.0 if life["alloc"] == NO_API else float(diagnosis.times[int(life["alloc"])])
    end = last if life["free"] == NO_API else float(diagnosis.times[int(life["free"])])
    return begin, max(end, begin + 1)


def _accesses(
    diagnosis: Diagnosis, chosen: Records
) -> defaultdict[int, list[tuple[float, int, str]]]:
    """Return (time, kind, label) of the accesses to some objects; of very many, evenly spread."""
    trace = diagnosis.trace
    found: defaultdict[int, list[tuple[float, int, str]]] = defaultdict(list)
    which = np.flatnonzero(np.isin(trace.accesses["object"], chosen))
    api_of = trace.api_of_access
    order = np.argsort(trace.accesses["object"][which], kind="stable")
    which = which[order]
    objects = trace.accesses["object"][which]
    for part in np.split(which, np.flatnonzero(np.diff(objects)) + 1):
        if not len(part):
            continue
        shown = _evenly(part, _MOST_MARKS)
        one = int(trace.accesses["object"][part[0]])
        for access in shown.tolist():
            api = int(api_of[access])
            kinds = _kinds(int(trace.accesses["flags"][access]))
            found[one] += [(float(diagnosis.times[api]), kind, trace.label(api)) for kind in kinds]
    return found


def _kinds(flags: int) -> tuple[int, ...]:
    return tuple(number for number, flag in enumerate((READS, WRITES, TOUCHES)) if flags & flag)


def _wasted(
    diagnosis: Diagnosis, chosen: Records
) -> defaultdict[int, list[tuple[float, float, str]]]:
    found: defaultdict[int, list[tuple[float, float, str]]] = defaultdict(list)
    records = diagnosis.records
    is_drawn = np.isin(records["pattern"], WASTED) & np.isin(records["object"], chosen)
    for row in records[is_drawn]:
        one, pattern = int(row["object"]), Pattern(int(row["pattern"]))
        begin, end = _ends_of(diagnosis, one)
        if pattern == Pattern.REDUNDANT_ALLOCATION:  # from here on it needs no memory of its own
            begin = float(diagnosis.times[int(row["to_api"])])
        else:
            if row["from_api"] != NO_API:
                begin = float(diagnosis.times[int(row["from_api"])])
            if row["to_api"] != NO_API:
                end = float(diagnosis.times[int(row["to_api"])])
        found[one].append((begin, end, pattern.words))
    return found


# ---- inside objects


def _insides(diagnosis: Diagnosis) -> Iterator[Touched]:
    """Yield the bytes that are accessed of the objects that are wasteful inside."""
    records = diagnosis.records
    inside = records["object"][np.isin(records["pattern"], INSIDE)].tolist()
    for one in list(dict.fromkeys(inside))[:MOST_INSIDE]:
        yield _touched(diagnosis, one)


def _touched(diagnosis: Diagnosis, one: int) -> Touched:
    trace = diagnosis.trace
    which = np.flatnonzero(trace.accesses["object"] == one)
    api_of = trace.api_of_access
    calls = np.unique(api_of[which])
    shown = _evenly(calls, _MOST_CALL_ROWS)
    drawn = which[np.isin(api_of[which], shown)]
    parts = [_runs(diagnosis, access) for access in drawn.tolist()]
    row_of = np.searchsorted(shown, api_of[drawn])
    row = np.repeat(row_of, [len(part) for part in parts])
    table = np.concatenate(parts) if parts else np.zeros((0, 3), np.int64)
    note = f"{len(shown)} of {len(calls):,} calls are drawn, evenly chosen"
    return Touched(
        f"bytes of {trace.object_name(one)}",
        table[:, 0].astype(np.float64),
        table[:, 1].astype(np.float64),
        row.astype(np.int32),
        table[:, 2],
        tuple(trace.label(call) for call in shown.tolist()),
        int(trace.objects["size_bytes"][one]),
        note=note if len(shown) < len(calls) else "",
    )


def _runs(diagnosis: Diagnosis, access: int) -> Records:
    """Return rows of begin, end, weight: the runs of one access, of very many evenly chosen."""
    trace = diagnosis.trace
    row = trace.accesses[access]
    if not row["range_count"]:
        size = int(trace.objects["size_bytes"][int(row["object"])])
        return np.array([[0, size, 1]], np.int64)
    first = int(row["first_range"])
    ranges = trace.ranges[first : first + int(row["range_count"])]
    parts = []
    most = max(1, _MOST_RUNS // len(ranges))
    for one in _evenly(ranges, _MOST_RUNS):
        runs = _spread(int(one["repeat"]), most).astype(np.uint64)
        begin = one["offset"] + runs * one["stride_bytes"]  # of one run it may be any number
        weight = np.full(len(runs), min(int(one["weight"]), _MOST_WEIGHT), np.uint64)
        parts.append(np.column_stack([begin, begin + one["size_bytes"], weight]))
    found: Records = np.concatenate(parts).astype(np.int64)
    return found


def _evenly(rows: Records, most: int) -> Records:
    chosen: Records = rows[_spread(len(rows), most)]
    return chosen


def _spread(count: int, most: int) -> Records:
    """Return numbers below `count`: all, or `most` of them evenly chosen, the ends among them."""
    chosen: Records = np.unique(np.linspace(0, count - 1, min(count, most), dtype=np.int64))
    return chosen


# ---- what to change


def _found(diagnosis: Diagnosis) -> Found:
    rest = others(diagnosis)
    rows = [_advised(diagnosis, advice) for advice in diagnosis.advice]
    rows += [_row(group) for group in rest[: max(MOST_ROWS - len(rows), 0)]]
    left_out = len(diagnosis.advice) + len(rest) - len(rows)
    note = (
        "peak then: with this change and those in the rows above, the trace replayed; empty where "
        "a change is not needed for the lowest peak"
    )
    if left_out:
        note += f"; {left_out:,} rows that are not needed are not shown"
    return Found("what to change, one after another", tuple(rows), colours(), note=note)


def _advised(diagnosis: Diagnosis, advice: Advice) -> FoundRow:
    return FoundRow(
        advice.cause,
        diagnosis.trace.object_name(advice.objects[0]),
        advice.bytes,
        advice.saving_bytes,
        advice.distance,
        advice.change,
        tuple(_frames(advice.made, advice.frames)),
        len(advice.objects),
        advice.peak_bytes,
    )


def _row(group: Group) -> FoundRow:
    example = group.example
    return FoundRow(
        example.pattern,
        example.object_name,
        group.bytes,
        group.saving_bytes,
        example.distance,
        example.change,
        tuple(_frames(example.place.frames, example.where.frames)),
        group.count,
    )


def _frames(made: Iterable[str], where: Iterable[str]) -> Iterator[str]:
    made, where = tuple(made), tuple(where)
    if where and where != made:
        yield "to change:"
        yield from (f"  {frame}" for frame in where)
    if made:
        yield "the object is made:"
        yield from (f"  {frame}" for frame in made)
