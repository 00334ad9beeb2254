"""Selects changes that lower the peak: as few as have the effect of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from gmlake.diagnosis.advice import Advice
from gmlake.diagnosis.words import Pattern, ease_of

if TYPE_CHECKING:
    from gmlake.diagnosis.findings import Group
    from gmlake.trace.layout import Records

    PeakWith: TypeAlias = Callable[[Sequence[Group]], int | None]
    """The highest peak with all findings of some groups fixed; None: enough was computed."""

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
