"""Replays a recording: the policies side by side, and what they say to recorded refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gmlake.refusals import MOST_REFUSALS, ask_again, others_of, refusals_of
from gmlake.replaying import Progress, ReplayReport, choose_policies, replay_trace
from gmlake.snapshots.classes import Owners
from gmlake.snapshots.inferred import with_categories
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.pool_names import private_pools
from gmlake.snapshots.sites import OwnLines
from gmlake.snapshots.whole import Source, load
from gmlake.trace.layout import Kind


def replay(  # noqa: PLR0913 (each is a setting of its own)
    recording: Source,
    policies: str | Sequence[str] = "all",
    capacity: int | str | None = None,
    driver: str = "sim",
    device: int = 0,
    *,
    progress: Progress | None = None,
    **knobs: int | str,
) -> ReplayReport:
    """Run the requests of each recorded device through the allocator, once per policy.

    Each time on a new lake. Blocks that were live before recording are placed first. SEGMENT_*
    events are not replayed, since every policy decides by itself when to grow; TRIM events are.
    With a capacity, a request that PyTorch refused is asked for, too, and freed at once: whether
    the whole fits includes it. The first refusals are asked of each policy in the memory that
    PyTorch could have held.

    recording: as gmlake.load() takes it. policies: "all", or names from gmlake.policies().
    capacity: of the device, in bytes or as text. None on "sim": 1 TiB, so that nothing is refused.
    device: the ordinal of the driver's device. progress: called after each slice of events with
    their number. knobs: settings for each policy that reads them, see gmlake.knobs(), as
    optimize_for="memory".

    Raises TraceError for a recording that contradicts itself, ValueError for a wrong argument,
    DriverError if the driver is not there.
    """
    source, chosen = load(recording), choose_policies(policies)
    reports = []
    for seen in source.devices:
        made = replay_trace(
            seen.trace, chosen, capacity, driver, device, progress=progress, **knobs
        )
        reports.append(_with_answers(made, seen, OwnLines(source.sites), capacity, knobs))
    return sum(reports[1:], reports[0]) if reports else ReplayReport()


def _with_answers(
    report: ReplayReport,
    seen: DeviceSnapshot,
    lines: OwnLines,
    capacity: int | str | None,
    knobs: dict[str, int | str],
) -> ReplayReport:
    """Add what others had, the private pools, and the refusals with each policy's answer."""
    trace = seen.trace
    if capacity and (others := others_of(trace)):
        report = replace(report, others={trace.name: others})
    rows = {result.first_refused for result in report.results} - {None, -1}
    count = int(np.count_nonzero(trace.requests["kind"] == Kind.OOM))
    if not (count or rows or trace.pools):
        return report
    policies = [result.policy for result in report.results]
    asked_bytes = report.capacity_bytes if capacity else None
    found = refusals_of(seen, slice(MOST_REFUSALS))
    owners = Owners(with_categories(seen, lines)[0], lines, [one.event for one in found])
    pools = private_pools(seen, lines)
    named = ("", *(pool.name for pool in pools))
    live = seen.peak.ids
    sums = np.bincount(trace.block_pools[live], seen.lives.size_bytes[live], len(named))
    in_pools = tuple(zip(pools, sums[1:].astype(np.int64).tolist(), strict=True))

    def line(row: int | None) -> str:
        number = int(seen.event_sites[row]) if row is not None and row >= 0 else 0
        return lines.name(number)

    refusals = tuple(
        replace(
            ask_again(trace, one, policies, asked_bytes, **knobs),
            asked_at=line(one.event),
            pool=named[int(seen.events["pool"][one.event])],
            most_held=owners.held_in_words(seen.lives.live_behind(one.event), one.event),
        )
        for one in found
    )
    return replace(
        report,
        pools={trace.name: in_pools} if in_pools else {},
        results=tuple(replace(one, asked_at=line(one.first_refused)) for one in report.results),
        refusals={trace.name: refusals} if refusals else {},
        refused={trace.name: count} if refusals else {},
    )
