"""gmlake validate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.validating import ValidationReport, load_notes, validate

if TYPE_CHECKING:
    import argparse


_DIFFERS = 1
_EXIT_CODES = (
    "exit code: 0 if all comparisons are equal, 1 if anything differs, 2 for a wrong argument or "
    "if any file could not be compared"
)


class ValidateCommand(common.Command):
    """Check the policies `caching` and `expandable` against PyTorch's own recordings."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        parser.epilog = _EXIT_CODES
        common.add_file_options(parser)
        parser.add_argument(
            "--statistics",
            action="store_true",
            help="also compare torch.cuda.memory_stats(), from the .json file beside each snapshot",
        )
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Validate each file; print one row per trace."""
        reports: list[ValidationReport] = []

        def work(path: str) -> None:
            seen = common.read_file(path, args.device)
            notes = None
            if args.statistics:
                beside = Path(path).with_suffix(".json")
                with Budget(beside):
                    notes = load_notes(beside)
            reports.append(validate(seen, notes))

        code = common.run_each(args.files, work)
        report = sum(reports, ValidationReport())
        if args.json:
            common.print_json(report.to_dict())
        elif reports:
            common.print_report(report)
        return code or (0 if report.is_complete else _DIFFERS)


COMMAND = ValidateCommand()
