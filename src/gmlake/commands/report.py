"""gmlake report."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.jobs.folder import read_folder
from gmlake.jobs.report import report_of
from gmlake.pictures.page import write_page


class ReportCommand(common.Command):
    """Compare the ranks of a job that `gmlake run --record FOLDER/` recorded.

    Who holds most, who was refused and where, what differs from rank to rank by line of the
    program, and whose memory grows or stays above that of the others.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = (
            "Ranks without a file, files that are cut off and files of others are named; the rest "
            "is compared. docs/seeing.md describes the JSON."
        )
        add = parser.add_argument
        add("folder", metavar="FOLDER", help="the folder that --record named")
        add("-o", "--output", metavar="PAGE", help="also write an HTML page, with pictures")
        add(
            "--job",
            type=common.count_argument,
            default=0,
            metavar="N",
            help="which of several in the folder, the oldest is 1 (default: the last one)",
        )
        add(
            "--top",
            type=common.count_argument,
            default=10,
            metavar="N",
            help="rows of each table to show (%(default)s)",
        )
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read the folder and report."""
        with Budget(args.folder, seconds=600):
            made = report_of(read_folder(args.folder), args.job, args.top)
            common.show(made, as_json=args.json)
            if args.output is not None:
                try:
                    write_page(made.report(), Path(args.output))
                except OSError as error:
                    common.print_error(f"cannot write {args.output}: {error.strerror}")
                    return common.CANNOT_WRITE
        return 0


COMMAND = ReportCommand()
