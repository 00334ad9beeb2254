"""Finds the ten patterns in a trace: find_inefficiencies()."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from gmlake import pictures
from gmlake.diagnosis import _diagnosis
from gmlake.diagnosis.advice import Advice, advise
from gmlake.diagnosis.findings import Call, Finding, FindingReader, Group
from gmlake.diagnosis.object_layout import FINDING, LIFE
from gmlake.diagnosis.object_trace import ObjectTrace
from gmlake.diagnosis.pages import report_of_diagnosis
from gmlake.diagnosis.report import diagnosis_dict, diagnosis_tables
from gmlake.diagnosis.words import Pattern, ease_of
from gmlake.errors import blaming_trace
from gmlake.pictures.drawable import Drawable
from gmlake.pictures.figures import Report
from gmlake.tables import Printed, Tables
from gmlake.trace.layout import Records

PeakWith: TypeAlias = Callable[[Sequence[Group]], int | None]
"""The highest peak with all findings of some groups fixed; None: enough was computed."""

LEAST_SHARE: Final = 0.001
"""A change is worth its line from this part of the peak on."""

_MOST_REPLAYED: Final = 20_000_000
"""The limit on replays to judge groups, to choose changes, and to order them: about a second."""

_FINDING_COST: Final = 20
"""The cost of fixing a finding in a replay, relative to that of an API."""


@dataclass(frozen=True)
class Peak:
    """The sum of live objects is highest, `bytes`, after the API `call`."""

    bytes: int
    call: Call


def find_inefficiencies(
    trace: ObjectTrace | str | Path, *, patterns: Iterable[str | Pattern] | None = None
) -> Diagnosis:
    """Find the ten patterns of memory inefficiency in a trace, or in the file of one.

    patterns: names of those to look for, as "early allocation"; None: all.

    Raises TraceError for an unreadable or contradictory trace, ValueError for an unknown pattern.
    """
    chosen = choose_patterns(patterns)
    read = trace if isinstance(trace, ObjectTrace) else ObjectTrace.load(trace)
    bits = sum(1 << pattern for pattern in chosen)
    with blaming_trace():
        found = _diagnosis.diagnose(
            read.apis, read.objects, read.accesses, read.ranges, patterns=bits
        )
    return Diagnosis(read, chosen, found)


def choose_patterns(patterns: Iterable[str | Pattern] | None) -> tuple[Pattern, ...]:
    """Return patterns by name, None: all. Raises ValueError for no name, or for an unknown one."""
    if patterns is None:
        return tuple(Pattern)
    named = [patterns] if isinstance(patterns, str) else list(patterns)
    chosen = {one if isinstance(one, Pattern) else Pattern.of(one) for one in named}
    if not chosen:
        raise ValueError("no pattern was chosen")
    return tuple(sorted(chosen))


class Diagnosis(Drawable, Printed):
    """The findings in a trace; prints as a table. Sizes are in bytes.

    trace: the trace that was analysed. patterns: those looked for.
    peaks: the highest peaks, highest first. fixed_peak_bytes: the highest peak with every finding
        fixed except redundant allocations whose fix would raise it.
    lives: records of each object, as in gmlake.diagnosis.object_layout.LIFE. times: of each API.
    records: of each finding, as in gmlake.diagnosis.object_layout.FINDING.
    seconds: the time to find them.
    """

    def __init__(
        self, trace: ObjectTrace, patterns: tuple[Pattern, ...], found: _diagnosis.Found
    ) -> None:
        self.trace = trace
        self.patterns = patterns
        self.lives: Records = np.frombuffer(found["lives"], LIFE)
        self.times: Records = np.frombuffer(found["times"], np.uint64)
        self.fixed_peak_bytes = found["fixed_peak_bytes"]
        self.seconds = found["time_ns"] / 1e9
        self.records: Records = np.frombuffer(found["findings"], FINDING)
        self._handle = found["handle"]
        self._reader = FindingReader(trace, self.records, self.lives)
        self.peaks = tuple(self._peaks(found["peaks"]))

    def _peaks(self, pairs: list[tuple[int, int]]) -> Iterator[Peak]:
        for api, size_bytes in pairs:
            call = self._reader.call(api)
            if call is not None:
                yield Peak(size_bytes, call)

    @property
    def peak_bytes(self) -> int:
        """The highest peak; 0 of a trace without objects."""
        return self._peak_bytes

    @cached_property
    def _peak_bytes(self) -> int:
        return self.peak_with(())

    @cached_property
    def end_time(self) -> float:
        """The time after the last API."""
        return float(self.times.max(initial=0)) + 1

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, ranked by the saving of its fix, then by its bytes times its distance."""
        return tuple(self._reader.finding(number) for number in range(len(self.records)))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The findings of each pattern and place together, ranked by the saving of their fix."""
        savings = self.records["saving_bytes"]
        sizes = self.records["bytes"]
        peak_with = self._limited_replays()
        found = []
        for numbers in self._reader.groups():
            example = self._reader.finding(numbers[0])
            saving = int(savings[numbers].max())
            group = Group(example, tuple(numbers), int(sizes[numbers].sum()), saving)
            together = peak_with([group]) if group.count > 1 else None
            if together is not None:
                group = replace(group, saving_bytes=max(self.peak_bytes - together, 0))
            found.append(group)
        return tuple(sorted(found, key=lambda group: -group.saving_bytes))

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What to change, one after another.

        Of a program of PyTorch its mistakes, those that cost most of the peak first. Of others, and
        if only some patterns were looked for, as few findings as lower the peak about as far as all
        fixed, except for copies to the host; those of less than LEAST_SHARE of the peak are left
        out, and of a very long trace with very many findings, only the first ones are there.
        """
        if self.trace.notes is not None and len(self.patterns) == len(Pattern):
            return advise(self.trace, self.lives, self.records)
        least = self.peak_bytes * LEAST_SHARE
        worthwhile = [group for group in self.groups if group.bytes >= least]
        return choose_changes(worthwhile, self.records["object"], self._limited_replays)

    def _limited_replays(self) -> Callable[[Sequence[Group]], int | None]:
        """Return peak_with() for groups, which returns None once its budget of replays is spent."""
        left = _MOST_REPLAYED

        def peak_with(groups: Sequence[Group]) -> int | None:
            nonlocal left
            count = sum(group.count for group in groups)
            left -= len(self.trace.apis) + _FINDING_COST * count
            if left < 0:
                return None
            chosen = np.fromiter(chain(*(group.numbers for group in groups)), np.uint64, count)
            # As the core fixes everything: by rank, and who takes over whose memory last.
            is_join = self.records["pattern"][chosen] == Pattern.REDUNDANT_ALLOCATION
            chosen = chosen[np.lexsort((chosen, is_join))]
            return _diagnosis.peak_with(self._handle, chosen)

        return peak_with

    def peak_with(self, findings: Iterable[Finding | int]) -> int:
        """Return the highest peak with these findings fixed, all at once.

        Of fixes that exclude each other, the first one counts.
        """
        return _diagnosis.peak_with(self._handle, _numbers(findings))

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as `gmlake diagnose --json` prints it."""
        return diagnosis_dict(self)

    def report(self) -> Report:
        """Return the figures of a page: its calls, the objects at the peaks, what to change."""
        return report_of_diagnosis(self)

    def write_html(self, path: str | Path) -> None:
        """Write a page that needs no network. Raises OSError."""
        pictures.write_page(self.report(), path)

    def __repr__(self) -> str:
        """Name the trace and count the findings."""
        return f"<Diagnosis of {self.trace.name!r}: {len(self.records)} findings>"

    def _tables(self) -> Tables:
        """Render the table, a row for each thing to change."""
        yield from diagnosis_tables(self)


def _numbers(findings: Iterable[Finding | int]) -> Records:
    chosen = [one.number if isinstance(one, Finding) else int(one) for one in findings]
    return np.array(chosen, np.uint64)


MOST_GROUPS: Final = 1000
"""The number of groups searched for changes, those with the largest savings."""


def choose_changes(
    groups: Sequence[Group], objects: Records, limited: Callable[[], PeakWith]
) -> tuple[Advice, ...]:
    """Return changes that lower the peak as far as all do, but for what waits on the host.

    Only the first MOST_GROUPS groups are considered. A harder change is left out if easier ones
    suffice; some redundant allocations would raise the peak.

    objects: of each finding. limited: makes a function that replays. If it stops before all is
    computed, some changes may not be needed, and the last ones are missing.
    """
    peak_with = limited()
    groups = groups[:MOST_GROUPS]
    easy = [(ease, group) for group in groups if (ease := ease_of(group.example.kind)) is not None]
    chosen = [group for _, group in sorted(easy, key=itemgetter(0))]
    joins = [group for group in groups if group.example.kind is Pattern.REDUNDANT_ALLOCATION]
    chosen += _added(joins, chosen, peak_with)
    chosen = _needed(chosen, peak_with)
    chosen.sort(key=lambda group: -group.saving_bytes)
    return tuple(_in_order(chosen, objects, limited()))


def _is_lower(peak: int | None, other: int | None) -> bool:
    return peak is not None and other is not None and peak < other


def _added(groups: list[Group], besides: list[Group], peak_with: PeakWith) -> list[Group]:
    """Return those that lower the peak, each with those before it and `besides`."""
    found: list[Group] = []
    lowest = peak_with(besides)
    for group in groups:
        peak = peak_with([*besides, *found, group])
        if peak is None:
            break
        if _is_lower(peak, lowest):
            found.append(group)
            lowest = peak
    return found


def _in_order(groups: Sequence[Group], objects: Records, peak_with: PeakWith) -> Iterator[Advice]:
    for count, group in enumerate(groups, start=1):
        peak_bytes = peak_with(groups[:count])
        if peak_bytes is None:
            return
        example = group.example
        yield Advice(
            example.pattern,
            example.line,
            example.where.frames,
            (f"{group.count:,} times, as: " if group.count > 1 else "") + example.change,
            group.bytes,
            group.saving_bytes,
            peak_bytes,
            tuple(objects[list(group.numbers)].tolist()),
            example.place.frames,
            example.distance,
        )


def _needed(groups: list[Group], peak_with: PeakWith) -> list[Group]:
    """Drop groups, the last first, as long as the peak does not rise."""
    aim = peak_with(groups)
    kept = groups
    chunks = [groups] if groups else []
    while chunks:
        chunk = chunks.pop()
        dropped = {id(one) for one in chunk}
        fewer = [one for one in kept if id(one) not in dropped]
        peak = peak_with(fewer)
        if peak is None or aim is None:
            break
        if peak <= aim:
            kept, aim = fewer, peak  # lower, where a fix made it higher
        elif len(chunk) > 1:
            middle = len(chunk) // 2
            chunks += [chunk[:middle], chunk[middle:]]
    return kept
