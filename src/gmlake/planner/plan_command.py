"""gmlake plan."""

from __future__ import annotations

import argparse
from dataclasses import replace

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.planner.api import MOST_BUDGET_MS, plan
from gmlake.planner.plan_files import MadeFor, SavedPlan, save_plans
from gmlake.planner.plan_report import PlanReport
from gmlake.snapshots.whole import load

_DOES_NOT_FIT = 1
_EXIT_CODES = (
    "exit code: 0 if every placement is within --capacity, 1 if one is not or the output "
    "could not be written, 2 for a wrong argument or a file that could not be planned"
)


class PlanCommand(common.Command):
    """Place what traces allocate, and plan the step that a trace repeats."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EXIT_CODES
        common.add_file_options(parser)
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help="write the plans of the repeated steps, which AutoPlan.load() reads",
        )
        parser.add_argument(
            "--budget-ms",
            type=_budget,
            metavar="N",
            help="about how long to search for each input (default: 350 to 1000, and more above "
            "77,000 requests)",
        )
        parser.add_argument(
            "--capacity",
            type=common.size_argument,
            metavar="SIZE",
            help="a peak that is good enough, as in 80GiB; says whether each input fits",
        )
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Plan each input; print one table."""
        reports: list[PlanReport] = []
        code = common.run_each(args.files, lambda path: reports.append(_plan_file(path, args)))
        report = sum(reports, PlanReport())
        if args.json or reports:
            common.show(report, as_json=args.json)
        if args.output is not None and code == 0:
            code = _write(args.output, report)
        return code or (0 if report.fits else _DOES_NOT_FIT)


def _plan_file(path: str, args: argparse.Namespace) -> PlanReport:
    """Read within the budget of reading; the search has its own."""
    with Budget(path):
        source = load(path).of_device(args.device)
    report = plan(source, budget_ms=args.budget_ms, capacity=args.capacity)
    return PlanReport(tuple(replace(result, trace=path) for result in report.results))


# ---- arguments


def _budget(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1  # noqa: PLR2004
    if not 1 <= value <= MOST_BUDGET_MS:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a whole number from 1 to {MOST_BUDGET_MS}"
        )
    return value


# ---- output


def _write(path: str, report: PlanReport) -> int:
    """Write the plans of the repeated steps and return the exit code."""
    plans = [
        SavedPlan(result.device, "train", result.step.plan)
        for result in report.results
        if result.step is not None
    ]
    if not plans:
        common.print_error(f"{path}: not written: no input repeats a step")
        return common.BAD_INPUT
    try:
        save_plans(path, plans, MadeFor())
    except OSError as error:
        common.print_error(f"cannot write {path}: {error.strerror}")
        return common.CANNOT_WRITE
    return 0


COMMAND = PlanCommand()
