"""gmlake plan."""

from __future__ import annotations

import argparse
from dataclasses import replace

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.planner.api import MOST_BUDGET_MS, plan
from gmlake.planner.instances import is_instance, load_instance
from gmlake.planner.plan_files import MadeFor, SavedPlan, save_plans
from gmlake.planner.plan_report import PlanReport, PlanResult
from gmlake.snapshots.whole import load

_DOES_NOT_FIT = 1
_EXIT_CODES = (
    "exit code: 0 if every placement is valid and within --capacity, 1 if one is not or the output "
    "could not be written, 2 for a wrong argument or a file that could not be planned"
)


class PlanCommand(common.Command):
    """Place what traces or CSV instances allocate, and plan the step that a trace repeats."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        parser.epilog = _EXIT_CODES
        common.add_file_options(parser)
        for action in parser._actions:  # noqa: SLF001 (argparse has no other way to find one)
            if action.dest == "files":
                action.help = (
                    f"{action.help}; or an instance as CSV, id,lower,upper,size, plain or gzip"
                )
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help="write the plans of the repeated steps, which AutoPlan.load() reads; of an "
            "instance: its CSV with a column offset",
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
        parser.add_argument(
            "--alignment",
            type=_alignment,
            metavar="N",
            help="of every address, a power of two (default: 512 for traces, 1 for CSV)",
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
        source = load_instance(path) if is_instance(path) else load(path).of_device(args.device)
    report = plan(
        source,
        budget_ms=args.budget_ms,
        capacity=args.capacity,
        alignment=args.alignment,
    )
    return PlanReport(tuple(replace(result, trace=path) for result in report.results))


# ---- arguments


def _budget(text: str) -> int:
    return _whole_number(text, 1, MOST_BUDGET_MS)


def _alignment(text: str) -> int:
    value = _whole_number(text, 1, 1 << 48)
    if value & (value - 1):
        raise argparse.ArgumentTypeError(f"{value} is not a power of two")
    return value


def _whole_number(text: str, least: int, most: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1  # noqa: PLR2004
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a whole number from {least} to {most}"
        )
    return value


# ---- output


def _write(path: str, report: PlanReport) -> int:
    """Write the requested files and return the exit code."""
    instances = [result for result in report.results if result.instance is not None]
    if instances and len(report.results) > 1:
        common.print_error("-o takes one instance, or traces only")
        return common.BAD_INPUT
    try:
        if instances:
            _write_instance(path, instances[0])
        elif not _write_plans(path, report):
            common.print_error(f"{path}: not written: no input repeats a step")
            return common.BAD_INPUT
    except OSError as error:
        common.print_error(f"cannot write {path}: {error.strerror}")
        return common.CANNOT_WRITE
    return 0


def _write_instance(path: str, result: PlanResult) -> None:
    assert result.instance is not None  # noqa: S101 (chosen so)
    assert result.offsets is not None  # noqa: S101
    result.instance.save_placement(path, result.offsets)


def _write_plans(path: str, report: PlanReport) -> bool:
    plans = [
        SavedPlan(result.device or 0, "train", result.step.plan)
        for result in report.results
        if result.step is not None
    ]
    if plans:
        save_plans(path, plans, MadeFor())
    return bool(plans)


COMMAND = PlanCommand()
