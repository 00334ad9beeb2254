"""gmlake replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.commands import common
from gmlake.lake import Lake
from gmlake.replaying import SIM_CAPACITY, ReplayReport, choose_policies, event_count, replay
from gmlake.units import format_size

if TYPE_CHECKING:
    import argparse


class ReplayCommand(common.Command):
    """Replay traces under several policies and compare what each would have reserved."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        common.add_file_options(parser)
        parser.add_argument(
            "--policy", default="all", metavar="A,B", help="policies to run (default: all)"
        )
        parser.add_argument(
            "--capacity",
            type=common.size_argument,
            metavar="SIZE",
            help="memory of the device, as in 80GiB (default: 1 TiB, so that nothing is refused)",
        )
        common.add_settings_option(parser)
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Replay each file; print one table per trace."""
        policies = choose_policies(args.policy)
        _check_settings(policies, args)
        reports: list[ReplayReport] = []
        code = common.run_each(
            args.files, lambda path: reports.extend(_replay_file(path, policies, args))
        )
        report = sum(reports[1:], reports[0]) if reports else ReplayReport()
        if args.json:
            common.print_json(report.to_dict())
        elif reports:
            common.print_report(report)
        return code


def _check_settings(policies: tuple[str, ...], args: argparse.Namespace) -> None:
    """Refuse a wrong setting or capacity once, before the first long file is read."""
    capacity = args.capacity or SIM_CAPACITY
    settings = dict(args.settings)
    for policy in policies:
        try:
            Lake("sim", policy, capacity, **settings).close()
        except MemoryError:
            msg = f"--capacity {format_size(capacity)}: accounting for that much {common.NO_MEMORY}"
            raise ValueError(msg) from None


def _replay_file(
    path: str, policies: tuple[str, ...], args: argparse.Namespace
) -> list[ReplayReport]:
    reports = []
    for trace in common.read_file(path, args.device):
        events = event_count(trace, policies)
        with common.progress_bar(trace.name, events) as progress:
            settings = dict(args.settings)
            reports.append(replay(trace, policies, args.capacity, progress=progress, **settings))
    return reports


COMMAND = ReplayCommand()
