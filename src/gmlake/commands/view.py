"""gmlake view."""

from __future__ import annotations

import argparse
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gmlake import _core, annexes, owned
from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.pictures.figures import Figure, Report
from gmlake.pictures.page import render_page, write_page
from gmlake.printable import printable
from gmlake.snapshots import report_of
from gmlake.snapshots.model import in_order
from gmlake.snapshots.whole import load
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.snapshots import DeviceSnapshot, Snapshot

_PAGE_START = b"<!DOCTYPE html>"
_MARK = b'<meta name="generator" content="gmlake">'
_MARK_WITHIN = 400


class ViewCommand(common.Command):
    """Draw a snapshot or trace as one HTML page for any browser."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = "The page needs no network and no other file."
        files = [common.RECORDING, *(annex.file_help for annex in annexes.hooked("view"))]
        parser.add_argument("file", metavar="FILE", help="; ".join(files))
        page = "the page to write (default: FILE's name with .html, in the current folder)"
        parser.add_argument("-o", "--output", metavar="PAGE", help=page)
        common.add_device_option(parser)
        parser.add_argument(
            "--replay",
            metavar="A,B",
            help='replay the recording under these policies, or "all", and draw how much each '
            "would have reserved",
        )
        for annex in annexes.hooked("view"):
            annex.add_options(parser)
        parser.add_argument("--open", action="store_true", help="open the page in a browser")

    def run(self, args: argparse.Namespace) -> int:
        """Read the file, write the page, and say where it is."""
        if args.replay is not None:
            from gmlake.replaying import choose_policies

            choose_policies(args.replay)
        page = _page_path(args.file, args.output)
        _core.keep_freed_memory()
        budget = Budget(args.file)
        with common.named(args.file):
            report = _report(args, budget)
            try:
                with budget:
                    if args.output is None:  # the name is a default, which other users can guess
                        owned.write_path(page, render_page(report).encode())
                    else:
                        write_page(report, page)
            except OSError as error:
                common.print_error(f"cannot write {page}: {error.strerror}")
                return common.CANNOT_WRITE
        print(f"{printable(str(page))}: {format_size(page.stat().st_size)}")  # noqa: T201 (output)
        if args.open:
            _open(page)
        return 0


def _page_path(source: str, output: str | None) -> Path:
    """Return where to write; ValueError if that would overwrite a file of another kind."""
    if output is not None:
        page = Path(output)
        if page.exists() and Path(source).exists() and page.samefile(source):
            raise ValueError(f"-o {output}: that is the input file")
        return page
    page = Path(f"{Path(source).stem or 'memory'}.html")
    if page.is_symlink() or (page.exists() and not _is_ours(page)):
        raise ValueError(f"{page} already exists and is not a page of gmlake; name another with -o")
    return page


def _is_ours(page: Path) -> bool:
    try:
        with page.open("rb") as file:
            start = file.read(_MARK_WITHIN)
    except OSError:
        return False
    return start.startswith(_PAGE_START) and _MARK in start


def _report(args: argparse.Namespace, budget: Budget) -> Report:
    """Read and draw the file within the budget; what else is asked for is not."""
    for annex in annexes.hooked("view"):
        if annex.is_own(args.file):
            with budget:
                own: Report = annex.report(args)
            return own
    with budget:
        seen = load(args.file).of_device(args.device)
        report = report_of(seen)
    figures = list(report.figures)
    for annex in annexes.hooked("view"):
        for one in _recorded(seen) if annex.is_wanted(args) else []:
            made = annex.report_of_trace(one.trace)
            figures += _titled(made, seen, one.device, made.title)
    if args.replay is not None:
        figures += _replayed(seen, args.replay)
    return replace(report, figures=tuple(figures))


def _replayed(seen: Snapshot, policies: str) -> list[Figure]:
    """Return a picture per device: the memory each policy would have reserved."""
    from gmlake.replaying import choose_policies, event_count, replay_trace

    chosen = choose_policies(policies)
    figures: list[Figure] = []
    for one in _recorded(seen):
        with common.progress_bar(one.trace.name, event_count(one.trace, chosen)) as progress:
            made = report_of(replay_trace(one.trace, chosen, progress=progress))
        figures += _titled(made, seen, one.device, "policies side by side, on the same requests")
    return figures


def _recorded(seen: Snapshot) -> list[DeviceSnapshot]:
    return [one for one in in_order(seen.devices) if len(one.trace.requests)]


def _titled(made: Report, seen: Snapshot, device: int, title: str) -> list[Figure]:
    name = f"Device {device}: " if len(seen.devices) > 1 else ""
    return [replace(figure, title=f"{name}{title}") for figure in made.figures]


def _open(page: Path) -> None:
    """Open a browser; a machine without one is no error, as the page is written."""
    if not webbrowser.open(page.resolve().as_uri()):
        common.print_error(f"no browser was found; the page is {page}")


COMMAND = ViewCommand()
