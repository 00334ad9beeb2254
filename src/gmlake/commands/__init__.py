"""The command line: a list of commands, and main."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import gmlake
from gmlake import annexes
from gmlake.commands import common
from gmlake.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

_ANNEXED: Final = annexes.commands()

COMMANDS: Final = {
    "run": "Run an unchanged Python program with its GPU memory served by gmlake.",
    "replay": "Replay traces under several policies and compare how much each would have reserved.",
    "fit": "Find the smallest device for recordings, or the largest batch that fits into one.",
    **{name: command.purpose for name, command in _ANNEXED.items()},
    "view": "Draw a snapshot or trace as one HTML page for any browser.",
    "query": "Ask a recording what is live at one moment, by line, category, stream or pool.",
    "compare": "Compare two recordings, or two moments of one: what grew, shrank, came and went.",
    "report": "Compare the ranks of a job that `gmlake run --record FOLDER/` recorded.",
    "top": "Follow running processes: how much they hold, and how requests are served.",
    "info": "Show how gmlake would serve PyTorch here, the devices found, and the policies.",
    "completion": "Print a completion script for bash, zsh, fish or tcsh.",
}
"""The purpose of each. A command's module is imported on demand, which may take a second."""

_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Prints one line for a wrong argument, and raises if the help cannot be written."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (argparse has them untyped)
        """Treat arguments like "-1" as values, so that their type reports what is wrong."""
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Write the help; the base class ignores errors."""
        out = file or sys.stdout
        if out is not None:
            out.write(self.format_help())

    def error(self, message: str) -> NoReturn:
        common.print_error(f"{message}; see {self.prog} --help")
        sys.exit(common.BAD_INPUT)


class _VersionAction(argparse.Action):
    """Loads the extension only where the version is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> NoReturn:
        sys.stdout.write(f"gmlake {gmlake.__version__}\n")
        parser.exit()


def make_parser(*chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, with the options of the chosen commands."""
    parser = _Parser(
        prog="gmlake",
        description="A GPU memory allocator for PyTorch that defragments by remapping.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_VersionAction, nargs=0, help="print the version")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        sub = choices.add_parser(name, help=purpose, allow_abbrev=False)
        if name in chosen:
            command = load(name)
            sub.description = type(command).__doc__
            command.prepare_parser(sub)
            sub.set_defaults(command=command)
    return parser


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by name."""
    actions = parser._actions  # noqa: SLF001 (argparse has no public list)
    (found,) = (action.choices for action in actions if isinstance(action.choices, dict))
    return found


def load(name: str) -> common.Command:
    """Return a command by its name."""
    module = _ANNEXED[name].module if name in _ANNEXED else f"gmlake.commands.{name}"
    made: common.Command = import_module(module).COMMAND
    return made


def _chosen(words: Sequence[str]) -> str | None:
    """Return the command among the words; any words before it are options."""
    return next((word for word in words if word in COMMANDS), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 1: `replay --capacity` or `fit --memory` found a trace that fits under none of the
    policies, `plan --capacity` one that does not fit, or the output could not be written.
    2: a wrong argument, or input that could not be read; one line on stderr says what, where and
    what to do. 130: interrupted. `run` becomes another program, and its exit code is that
    program's.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if sys.stdout is None and _needs_output(words):
        common.print_error("standard output is closed")
        return common.CANNOT_WRITE
    try:
        return _run(words)
    except (Error, ValueError) as error:
        common.print_error(error)
        return common.BAD_INPUT
    except MemoryError:
        common.print_error(common.NO_MEMORY)
        return common.BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        return _stop(error)


def _stop(error: OSError) -> int:
    if error.filename is not None:  # it is not the output
        common.print_error(f"{error.filename}: {error.strerror}")
        return common.BAD_INPUT
    common.silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0  # the reader of the pipe has seen enough, as `head` has
    common.print_error(f"cannot write the output: {error.strerror}")
    return common.CANNOT_WRITE


def _needs_output(words: list[str]) -> bool:
    chosen = _chosen(words[:1])
    return chosen is None or load(chosen).needs_output


def _split_program(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return gmlake's arguments, and those of the program after "--" if the command runs one."""
    words = list(arguments)
    chosen = _chosen(words[:1])
    if chosen is None or "--" not in words or not load(chosen).takes_program:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _run(arguments: Sequence[str]) -> int:
    try:
        own, program = _split_program(arguments)
        parser = make_parser(_chosen(own))
        if not own and program is None:
            parser.print_help()
            return 0
        args = parser.parse_args(own)
        args.program = program
        command: common.Command = args.command
        return command.run(args)
    finally:
        # Also after --help and --version, which end in SystemExit.
        if sys.stdout is not None:
            sys.stdout.flush()
