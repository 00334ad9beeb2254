"""The command line: a list of commands, and main."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from gmlake.commands import common
from gmlake.commands.info import InfoCommand
from gmlake.commands.replay import ReplayCommand
from gmlake.commands.validate import ValidateCommand
from gmlake.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: tuple[common.Command, ...] = (ReplayCommand(), ValidateCommand(), InfoCommand())

_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Prints one line for a wrong argument, not the usage and a line."""

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

    0: done. 2: a wrong argument, or input that could not be read; one line on stderr says what,
    where and what to do. 130: interrupted.
    """
    args = make_parser().parse_args(arguments)
    command: common.Command = args.command
    try:
        code = command.run(args)
        sys.stdout.flush()
    except (Error, ValueError) as error:
        common.print_error(error)
        return common.BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away; nothing more can be written, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
