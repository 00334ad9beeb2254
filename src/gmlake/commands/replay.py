"""gmlake replay."""

from __future__ import annotations

import argparse
from typing import Final

from gmlake.commands import common
from gmlake.replayed import replay
from gmlake.replaying import SIM_CAPACITY, ReplayReport, choose_policies, event_count

_EPILOG: Final = (
    "Exit code: 0; 1 where --capacity is given and a trace fits under none of the policies; 2 for "
    "a wrong argument, or a file that could not be read."
)


class ReplayCommand(common.Command):
    """Replay traces under several policies and compare how much each would have reserved."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
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
            args.files, lambda path: reports.append(_replay_file(path, policies, args))
        )
        report = sum(reports[1:], reports[0]) if reports else ReplayReport()
        if args.json or reports:
            common.show(report, as_json=args.json)
        return code or (common.DOES_NOT_FIT if args.capacity and not report.fits else 0)


def _replay_file(path: str, policies: tuple[str, ...], args: argparse.Namespace) -> ReplayReport:
    seen = common.read_file(path, args.device)
    events = sum(event_count(one.trace, policies) for one in seen.devices)
    with common.progress_bar(seen.name, events) as progress:
        return replay(seen, policies, args.capacity, progress=progress, **dict(args.settings))


COMMAND = ReplayCommand()
