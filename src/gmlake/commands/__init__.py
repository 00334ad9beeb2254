"""The command line: a list of commands, and main."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from gmlake.commands import common
from gmlake.commands.diagnose import DiagnoseCommand
from gmlake.commands.info import InfoCommand
from gmlake.commands.plan import PlanCommand
from gmlake.commands.replay import ReplayCommand
from gmlake.commands.run import RunCommand
from gmlake.commands.top import TopCommand
from gmlake.commands.validate import ValidateCommand
from gmlake.commands.view import ViewCommand
from gmlake.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

COMMANDS: tuple[common.Command, ...] = (
    RunCommand(),
    ReplayCommand(),
    PlanCommand(),
    DiagnoseCommand(),
    ValidateCommand(),
    ViewCommand(),
    TopCommand(),
    InfoCommand(),
)

_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Prints one line for a wrong argument, and does not pass over help that was not written."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Write the help; the base class passes over what went wrong."""
        out = file or sys.stdout
        if out is not None:
            out.write(self.format_help())

    def error(self, message: str) -> NoReturn:
        common.print_error(f"{message}; see {self.prog} --help")
        sys.exit(common.BAD_INPUT)


class _VersionAction(argparse.Action):
    """Loads the extension only where the version is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> NoReturn:
        from gmlake import __version__

        sys.stdout.write(f"gmlake {__version__}\n")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="gmlake",
        description="A GPU memory allocator for PyTorch that does not fragment.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_VersionAction, nargs=0, help="print the version")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = choices.add_parser(
            command.name,
            help=command.help,
            description=type(command).__doc__,
            allow_abbrev=False,
        )
        command.prepare_parser(sub)
        sub.set_defaults(command=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 1: `validate` found a difference, `plan` something that does not fit, or the output
    could not be written. 2: a wrong argument, or input that could not be read; one line on stderr
    says what, where and what to do. 130: interrupted. `run` becomes another program, and its exit
    code is that program's.
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
        return _stop_writing(error)


def _stop_writing(error: OSError) -> int:
    common.silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0  # the reader of the pipe has seen enough, as `head` has
    common.print_error(f"cannot write the output: {error.strerror}")
    return common.CANNOT_WRITE


def _needs_output(words: list[str]) -> bool:
    silent = [command.name for command in COMMANDS if not command.needs_output]
    return not words or words[0] not in silent


def _split_program(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return what is ours, and the words of a program after "--" where a command takes one."""
    words = list(arguments)
    takers = [command.name for command in COMMANDS if command.takes_program]
    if not words or words[0] not in takers or "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _run(arguments: Sequence[str]) -> int:
    try:
        own, program = _split_program(arguments)
        args = make_parser().parse_args(own)
        args.program = program
        command: common.Command = args.command
        return command.run(args)
    finally:
        # Also after --help and --version, which end in SystemExit.
        if sys.stdout is not None:
            sys.stdout.flush()
