"""gmlake query."""

from __future__ import annotations

import argparse

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.snapshots.queries import query
from gmlake.snapshots.whole import load


class QueryCommand(common.Command):
    """Ask a recording what is live at one moment, by line, category, stream or pool."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = "docs/seeing.md describes the JSON."
        parser.add_argument("file", metavar="FILE", help=common.RECORDING)
        common.add_question_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read the file and answer."""
        with common.named(args.file), Budget(args.file):
            report = query(load(args.file), args.at or "", args.by, args.device, args.top)
        common.show(report, as_json=args.json)
        return 0


COMMAND = QueryCommand()
