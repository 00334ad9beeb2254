"""gmlake replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.refusals import MOST_REFUSALS, ask_again, others_of, refusals_of
from gmlake.replaying import SIM_CAPACITY, ReplayReport, choose_policies, event_count, replay
from gmlake.snapshots.classes import Owners
from gmlake.snapshots.inferred import with_categories
from gmlake.snapshots.pool_names import private_pools
from gmlake.snapshots.sites import OwnLines
from gmlake.snapshots.whole import Snapshot
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    import argparse


_EPILOG: Final = (
    "Exit code: 0; 1 where --capacity is given and a trace fits under none of the policies; 2 for "
    "a wrong argument, or a file that could not be read."
)


class ReplayCommand(common.Command):
    """Replay traces under several policies and compare how much each would have reserved."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        parser.epilog = _EPILOG
        common.add_file_options(parser)
        parser.add_argument(
            "--policy", default="all", metavar="A,B", help="policies to run (default: all)"
        )
        parser.add_argument(
            "--capacity",
            type=common.size_argument,
            metavar="SIZE",
            help="memory of the device, such as 80GiB (default: 1 TiB, so that nothing is refused)",
        )
        common.add_settings_option(parser)
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Replay each file; print one table per trace."""
        policies = choose_policies(args.policy)
        for policy in policies:  # once, before the first long file is read
            common.check_settings(policy, args.capacity or SIM_CAPACITY, dict(args.settings))
        reports: list[ReplayReport] = []
        code = common.run_each(
            args.files, lambda path: reports.extend(_replay_file(path, policies, args))
        )
        report = sum(reports[1:], reports[0]) if reports else ReplayReport()
        if args.json:
            common.print_json(report.to_dict())
        elif reports:
            common.print_report(report)
        return code or (common.DOES_NOT_FIT if args.capacity and not report.fits else 0)


def _replay_file(
    path: str, policies: tuple[str, ...], args: argparse.Namespace
) -> list[ReplayReport]:
    reports = []
    for trace in common.read_file(path, args.device):
        events = event_count(trace, policies)
        settings = dict(args.settings)
        with common.progress_bar(trace.name, events) as progress:
            report = replay(trace, policies, args.capacity, progress=progress, **settings)
        if args.capacity and (others := others_of(trace)):
            report = replace(report, others={trace.name: others})
        count = int(np.count_nonzero(trace.requests["kind"] == Kind.OOM))
        rows = {result.first_refused for result in report.results} - {None, -1}
        if count or rows or trace.pools:
            with Budget(path):
                snapshot = Snapshot.load(path)
            refusals = tuple(
                ask_again(trace, refusal, policies, args.capacity, **settings)
                for refusal in refusals_of(snapshot[trace.device], MOST_REFUSALS)
            )
            if refusals:
                named = {trace.name: refusals}
                report = replace(report, refusals=named, refused={trace.name: count})
            report = _with_lines(report, snapshot, trace.device)
        reports.append(report)
    return reports


def _with_lines(report: ReplayReport, snapshot: Snapshot, device: int) -> ReplayReport:
    """Add the private pools, and to refusals the line that asked and who held most."""
    refusals = [refusal for each in report.refusals.values() for refusal in each]
    rows = {result.first_refused for result in report.results} - {None, -1}
    rows |= {refusal.event for refusal in refusals}
    seen, lines = snapshot[device], OwnLines(snapshot.sites)
    owners = Owners(with_categories(seen, lines)[0], lines)
    pools = private_pools(seen, lines)
    named = ("", *(pool.name for pool in pools))
    live = seen.peak.ids
    sums = np.bincount(seen.trace.block_pools[live], seen.lives.size_bytes[live], len(named))
    in_pools = tuple(zip(pools, sums[1:].astype(np.int64).tolist(), strict=True))

    def line(row: int | None) -> str:
        number = int(seen.event_sites[row]) if row in rows and row is not None else 0
        return lines.line(number)

    return replace(
        report,
        pools={report.results[0].trace: in_pools} if in_pools else {},
        results=tuple(replace(one, asked_at=line(one.first_refused)) for one in report.results),
        refusals={
            trace: tuple(
                replace(
                    one,
                    asked_at=line(one.event),
                    pool=named[int(seen.events["pool"][one.event])],
                    most_held=owners.held_in_words(seen.lives.live_behind(one.event), one.event),
                )
                for one in each
            )
            for trace, each in report.refusals.items()
        },
    )


COMMAND = ReplayCommand()
