"""gmlake completion."""

from __future__ import annotations

import argparse
import sys

from gmlake.commands import COMMANDS, common, make_parser, subparsers
from gmlake.errors import UnsupportedError
from gmlake.settings import policies
from gmlake.snapshots.asking import MOMENTS


class CompletionCommand(common.Command):
    """Print a completion script for bash, zsh, fish or tcsh. Needs shtab."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))

    def run(self, args: argparse.Namespace) -> int:
        """Show shtab every command, and the values that options check by themselves."""
        try:
            import shtab
        except ModuleNotFoundError:
            raise UnsupportedError("shtab is not installed: pip install shtab") from None
        known = {
            "--policy": ("all", *policies()),
            "--replay": ("all", *policies()),
            "--at": MOMENTS,
        }
        parser = make_parser(*COMMANDS)
        for command in subparsers(parser).values():
            for action in command._actions:  # noqa: SLF001 (argparse has no public list)
                for flag in known.keys() & action.option_strings:
                    action.choices = known[flag]
        sys.stdout.write(shtab.complete(parser, args.shell))
        return 0


COMMAND = CompletionCommand()
