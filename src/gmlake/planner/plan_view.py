"""Draws plans for `gmlake view`: plan files, and recordings as the planner places them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gmlake.errors import Error
from gmlake.pictures.figures import Report
from gmlake.planner.annex import PLAN_FILE
from gmlake.planner.plan_errors import PlanError
from gmlake.printable import printable
from gmlake.snapshots.whole import of_one_trace

if TYPE_CHECKING:
    from gmlake.trace import Trace


class PlanView:
    """The hook `view`."""

    file_help: Final = "or a plan file"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add --plan."""
        parser.add_argument(
            "--plan",
            action="store_true",
            help="place the recorded requests with all of them known, and draw the placement",
        )

    def is_wanted(self, args: argparse.Namespace) -> bool:
        """Whether --plan was given."""
        return bool(args.plan)

    def report_of_trace(self, trace: Trace) -> Report:
        """Return the planner's placement of everything; the title goes to its figures."""
        from gmlake.planner.api import plan

        return replace(plan(of_one_trace(trace)).report(), title="placed with all requests known")

    def is_own(self, path: str) -> bool:
        """Whether it is a plan file."""
        try:
            if not Path(path).is_file():
                return False  # to open a pipe would wait for its other end
            with Path(path).open("rb") as file:
                return file.read(len(PLAN_FILE)) == PLAN_FILE
        except (OSError, ValueError):
            return False  # reading it later reports the error

    def report(self, args: argparse.Namespace) -> Report:
        """Return the plans of a file. Raises Error for one that cannot be read."""
        if args.replay is not None or args.plan:
            raise PlanError("this is a plan already; leave out --plan and --replay")
        from gmlake.planner.plan_files import load_plans
        from gmlake.planner.saved import report_of_saved

        try:
            file = load_plans(args.file)
        except PlanError as error:
            raise Error(str(error).removeprefix(f"{printable(args.file)}: ")) from None
        return replace(report_of_saved(file).report(), title=printable(Path(args.file).name))


VIEW: Final = PlanView()
