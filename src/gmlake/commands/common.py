"""Shared by every command: its shape, options, error lines, JSON output, and the progress bar."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from gmlake.budget import Budget
from gmlake.errors import Error, OutOfMemoryError, TraceError
from gmlake.lake import Lake
from gmlake.printable import printable
from gmlake.settings import settings_of
from gmlake.snapshots.asking import GROUPS, check_moment
from gmlake.snapshots.whole import Snapshot, load
from gmlake.units import format_size, parse_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gmlake.replaying import Progress

_Read = TypeVar("_Read")

BAD_INPUT = 2
"""Exit code after a wrong argument, or a file that could not be read."""

CANNOT_WRITE = 1
"""Exit code if the output could not be written."""

DOES_NOT_FIT = 1
"""Exit code if nothing serves a recording in the memory that was named."""

NO_MEMORY = "needs more memory than this machine has"

RECORDING = "a PyTorch memory snapshot (pickle or JSON), a file of Snapshot.save(), or a .gmtrace"

_NARROWEST = 40

LONG_REPLAY = 200_000
"""Events from which a progress bar is worth its flicker."""


class Command(ABC):
    """One subcommand: named like its module, explained by its docstring."""

    needs_output = True
    """Whether it writes to standard output."""

    takes_program = False
    """Whether a program to run follows a "--": `args.program`, a list of words."""

    @abstractmethod
    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Run it and return the exit code; gmlake.Error and ValueError become one line."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add --device."""
    what = "only this device, if the file has several (default: all)"
    parser.add_argument("--device", type=int, metavar="N", help=what)


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the files, and --device."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=RECORDING)
    add_device_option(parser)


def add_question_options(parser: argparse.ArgumentParser) -> None:
    """Add what a question about the memory of one moment has."""
    parser.add_argument(
        "--at",
        type=argument(check_moment),
        metavar="MOMENT",
        help="peak, refusal (the last one), start, end, or the number of an event (default: the "
        "refusal if there is one, else the peak)",
    )
    parser.add_argument(
        "--by",
        choices=GROUPS,
        default="line",
        help="what to group by; an owner is a line with the sizes that it asked for (%(default)s)",
    )
    parser.add_argument(
        "--top", type=count_argument, default=10, metavar="N", help="rows to show (%(default)s)"
    )
    add_device_option(parser)
    add_json_option(parser)


def argument(read: Callable[[str], _Read]) -> Callable[[str], _Read]:
    """Have argparse keep the reason of a refusal."""

    def read_argument(text: str) -> _Read:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_argument


@argument
def count_argument(text: str) -> int:
    """Read a number from 1 on for argparse."""
    if not (text.isascii() and text.isdigit() and int(text[:18]) > 0):
        raise ValueError(f"{text[:40]!r} is not a number from 1 on")
    return int(text[:18])


def add_settings_option(parser: argparse.ArgumentParser) -> None:
    """Add --set."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=_setting,
        dest="settings",
        metavar="NAME=VALUE",
        help="a knob of the policies, such as optimize_for=memory; see `gmlake info --knobs`",
    )


@argument
def _setting(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return settings_of({name: value})[0]


def check_settings(policy: str, capacity_bytes: int | None, settings: dict[str, int | str]) -> None:
    """Raise ValueError or Error for settings that no lake can be opened with."""
    knobs: dict[str, Any] = dict(settings)
    try:
        Lake("sim", policy, capacity_bytes, **knobs).close()
    except OutOfMemoryError:
        raise  # it names the setting
    except MemoryError:
        size = f" {format_size(capacity_bytes)}" if capacity_bytes else ""
        raise ValueError(f"--capacity{size}: accounting for that much {NO_MEMORY}") from None


@argument
def size_argument(text: str) -> int:
    """Read a size for argparse."""
    size_bytes = parse_size(text)
    if size_bytes == 0:
        raise ValueError("0 bytes cannot serve anything; leave the option out for no limit")
    return size_bytes


def read_file(path: str, device: int | None) -> Snapshot:
    """Return the recording in a file, of all devices or of one. Reading has a budget."""
    with Budget(path):
        return load(path).of_device(device)


@contextmanager
def named(path: str) -> Iterator[None]:
    """Add the file's name to errors about it; arguments were checked before."""
    try:
        yield
    except TraceError as error:
        raise TraceError(error.reason, event=error.event, path=error.path or path) from None
    except Error as error:
        raise type(error)(f"{printable(path)}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise TraceError(str(error), path=path) from None
    except MemoryError:
        raise TraceError(NO_MEMORY, path=path) from None


def print_error(text: object) -> None:
    """Print one line on stderr, with control characters escaped; ignore an unwritable stderr."""
    if sys.stderr is None:
        return
    try:
        print(f"gmlake: {printable(str(text))}", file=sys.stderr, flush=True)  # noqa: T201 (output)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Drop the buffer of a stream that failed, so that it does not fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def print_report(report: RenderableType, piped_width: int = 100) -> None:
    """Print a table, as wide as COLUMNS or the terminal at most; `piped_width` without both."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program with an error

    if sys.stdout.isatty():
        console = Output()
    else:
        width = shutil.get_terminal_size((piped_width, 0)).columns
        console = Output(width=max(width, _NARROWEST), color_system=None)
    console.print(report)


def show(report: Any, *, as_json: bool) -> None:  # noqa: ANN401 (a table that has to_dict())
    """Print a report as the user asked for it."""
    if as_json:
        print_json(report.to_dict())
    else:
        print_report(report)


def print_json(data: dict[str, Any]) -> None:
    """Print JSON on stdout."""
    print(json.dumps(data, indent=2, allow_nan=False))  # noqa: T201 (the command line's output)


@contextmanager
def progress_bar(title: str, events: int) -> Iterator[Progress | None]:
    """Yield a callback for the events replayed; None if no bar is drawn.

    A bar is drawn on stderr, if that is a terminal and the replay is long.
    """
    if events < LONG_REPLAY or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=events)

        def advance(count: int) -> None:
            bar.advance(task, count)

        yield advance


@contextmanager
def telling() -> Iterator[Callable[[str], None] | None]:
    """Yield a callback that shows on stderr what is being done; None if that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as line:
        yield lambda doing: line.update(Text(printable(doing)))


def run_each(paths: Sequence[str], work: Callable[[str], None]) -> int:
    """Call work(path) for each file; one that fails is reported and the others still run."""
    code = 0
    for path in paths:
        try:
            with named(path):
                work(path)
        except Error as error:
            print_error(error)
            code = BAD_INPUT
    return code
