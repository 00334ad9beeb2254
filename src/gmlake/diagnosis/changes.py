"""Selects changes that lower the peak: as few as have the effect of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gmlake.diagnosis.words import Pattern, ease_of

if TYPE_CHECKING:
    from gmlake.diagnosis.findings import Group

    PeakWith: TypeAlias = Callable[[Sequence[Group]], int | None]
    """The highest peak with all findings of some groups fixed; None: enough was computed."""

MOST_GROUPS: Final = 1000
"""The number of groups searched for changes, those with the largest savings."""


@dataclass(frozen=True)
class Change:
    """One thing to change, after those before it.

    group: the findings that it fixes. peak_bytes: the highest peak with it and those before it.
    """

    group: Group
    peak_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "peak_bytes": self.peak_bytes,
            "change": self.group.example.change,
            **self.group.to_dict(),
        }


def choose_changes(groups: Sequence[Group], limited: Callable[[], PeakWith]) -> tuple[Change, ...]:
    """Return changes that lower the peak as far as all do, those that keep memory away last.

    Only the first MOST_GROUPS groups are considered. A harder change is left out if easier ones
    suffice; some redundant allocations would raise the peak.

    Even without offloads (temporary idleness), the changes lower the peak as far as all changes
    without offloads. limited: makes a function that replays. If it stops before all is computed,
    some changes may not be needed, and the last ones are missing.
    """
    peak_with = limited()
    groups = groups[:MOST_GROUPS]
    idle = [group for group in groups if group.example.kind is Pattern.TEMPORARY_IDLENESS]
    easy = [(ease, group) for group in groups if (ease := ease_of(group.example.kind)) is not None]
    others = [group for _, group in sorted(easy, key=itemgetter(0))]
    joins = [group for group in groups if group.example.kind is Pattern.REDUNDANT_ALLOCATION]
    joined = _added(joins, others, peak_with)
    if _is_lower(peak_with([*others, *idle]), peak_with([*others, *joined, *idle])):
        joined = []
    others += joined
    others += _added([one for one in joins if one not in joined], [*others, *idle], peak_with)
    idle = _needed(idle, [lambda kept: [*others, *kept]], peak_with)
    others = _needed(others, [list, lambda kept: [*kept, *idle]], peak_with)
    others.sort(key=lambda group: -group.saving_bytes)
    return tuple(_in_order([*others, *idle], limited()))


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


def _in_order(groups: Sequence[Group], peak_with: PeakWith) -> Iterator[Change]:
    for count in range(1, len(groups) + 1):
        peak_bytes = peak_with(groups[:count])
        if peak_bytes is None:
            return
        yield Change(groups[count - 1], peak_bytes)


def _needed(
    groups: list[Group],
    settings: Sequence[Callable[[list[Group]], list[Group]]],
    peak_with: PeakWith,
) -> list[Group]:
    """Drop groups, the last first, as long as the peak does not rise under any setting.

    A setting adds other groups that are fixed, too.
    """
    aims = [peak_with(setting(groups)) for setting in settings]
    kept = groups
    chunks = [groups] if groups else []
    while chunks:
        chunk = chunks.pop()
        dropped = {id(one) for one in chunk}
        fewer = [one for one in kept if id(one) not in dropped]
        peaks = [peak_with(setting(fewer)) for setting in settings]
        if None in peaks or None in aims:
            break
        if not any(_is_lower(aim, peak) for peak, aim in zip(peaks, aims, strict=True)):
            kept, aims = fewer, peaks  # lower, where a fix made it higher
        elif len(chunk) > 1:
            middle = len(chunk) // 2
            chunks += [chunk[:middle], chunk[middle:]]
    return kept
