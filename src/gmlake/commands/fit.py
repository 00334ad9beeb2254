"""gmlake fit."""

from __future__ import annotations

import argparse
from typing import Final

from gmlake.commands import common
from gmlake.fitting import POLICIES, FitReport, fit
from gmlake.snapshots.whole import Snapshot

_EPILOG: Final = (
    "Exit code: 0; 1 where --memory is given and one of the recordings fits with none of the "
    "policies, or no batch does; 2 for a wrong argument, or a file that could not be read."
)


class FitCommand(common.Command):
    """Find the smallest device for recordings, or the largest batch that fits into one.

    Each file is replayed on devices of different sizes until the smallest that serves it is found.
    Two recordings of one program with different batches predict any batch.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        common.add_file_options(parser)
        parser.add_argument(
            "--memory",
            type=common.size_argument,
            metavar="SIZE",
            help="memory that PyTorch may use, such as 22GiB: does it fit?",
        )
        parser.add_argument(
            "--batch",
            type=_batches,
            metavar="A,B",
            help="the batches of two recordings: find the largest that fits into --memory",
        )
        parser.add_argument(
            "--policy",
            default=",".join(POLICIES),
            metavar="A,B",
            help="policies to try (%(default)s)",
        )
        common.add_settings_option(parser)
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Ask about each file, or about two together."""
        if args.batch is None:
            reports: list[FitReport] = []

            def work(path: str) -> None:
                reports.append(_fit([common.read_file(path, args.device)], args))

            code = common.run_each(args.files, work)
        else:
            recordings = [_only(path, args) for path in args.files]
            reports, code = [_fit(recordings, args)], 0
        fits = all(report.fits for report in reports)
        if args.json:
            common.print_json({"reports": [report.to_dict() for report in reports]})
        else:
            for report in reports:
                common.print_report(report)
        return code or (common.DOES_NOT_FIT if args.memory and not fits else 0)


def _batches(text: str) -> tuple[int, int]:
    try:
        first, second = map(int, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not two numbers, as 8,16") from None
    return first, second


def _only(path: str, args: argparse.Namespace) -> Snapshot:
    with common.named(path):
        seen = common.read_file(path, args.device)
        if len(seen) != 1:
            devices = ", ".join(str(one.device) for one in seen)
            raise ValueError(f"it has the devices {devices}; choose one with --device")
        return seen


def _fit(recordings: list[Snapshot], args: argparse.Namespace) -> FitReport:
    with common.telling() as tell:
        return fit(
            recordings,
            args.memory,
            args.batch,
            args.policy,
            progress=tell,
            **dict(args.settings),
        )


COMMAND = FitCommand()
