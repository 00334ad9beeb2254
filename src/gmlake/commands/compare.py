"""gmlake compare."""

from __future__ import annotations

import argparse

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.snapshots.asking import split_moment
from gmlake.snapshots.comparing import CompareReport, compare
from gmlake.snapshots.whole import Snapshot, load


class CompareCommand(common.Command):
    """Compare two recordings, or two moments of one: what grew, shrank, came and went."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = (
            "FILE@MOMENT is a moment of its own: gmlake compare run.pickle@start run.pickle@end. "
            "docs/seeing.md describes the JSON."
        )
        for name, what in (("before", "the first recording"), ("after", "the second")):
            parser.add_argument(
                name,
                metavar="FILE[@MOMENT]",
                type=common.argument(split_moment),
                help=f"{what}, or a moment of it",
            )
        common.add_question_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read both files and compare them."""
        report = _compared(args)
        common.show(report, as_json=args.json)
        return 0


def _compared(args: argparse.Namespace) -> CompareReport:
    seen: dict[str, Snapshot] = {}
    for path, _ in (args.before, args.after):
        if path not in seen:
            with common.named(path), Budget(path):
                seen[path] = load(path)
    at = args.before[1] or args.at or "", args.after[1] or args.at or ""
    sides = seen[args.before[0]], seen[args.after[0]]
    return compare(*sides, at, by=args.by, device=args.device, top=args.top)


COMMAND = CompareCommand()
