"""gmlake run."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gmlake import annexes
from gmlake.commands import common
from gmlake.pytorch.session_settings import Given, Settings, new_file, with_startup

_USAGE = """gmlake run [options] SCRIPT [ARGUMENT ...]
       gmlake run [options] -m MODULE [ARGUMENT ...]
       gmlake run [options] -c CODE [ARGUMENT ...]"""
_EPILOG = (
    "Options come before the program; what follows it is the program's. SCRIPT may be a folder or "
    "zip file with a __main__.py, or - for standard input, as for python itself. The exit code is "
    "the program's; 2 for a wrong option, or a script that is not there."
)
_WHICH = "name a script, or -m MODULE, or -c CODE"


class RunCommand(common.Command):
    """Run an unchanged Python program with its GPU memory served by gmlake.

    Processes that it starts are served as well, including those of torchrun and multiprocessing.
    """

    needs_output = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = _USAGE
        parser.epilog = _EPILOG
        add = parser.add_argument
        add("--policy", metavar="NAME", help="the policy (stitch); see `gmlake info`")
        add(
            "--capacity",
            type=common.size_argument,
            metavar="SIZE",
            help="maximum memory to hold on each device, such as 20GiB (no limit)",
        )
        common.add_settings_option(parser)
        add(
            "--on-oom",
            metavar="FILE",
            help="when memory runs out, write what held it to FILE, for `gmlake view`; once for "
            "each process, with its rank in the name",
        )
        add(
            "--on-oom-lines",
            action="store_true",
            help="include the last events in that file, with their source lines; costs some "
            "microseconds for each request",
        )
        add(
            "--record",
            metavar="FILE|FOLDER/",
            help="record every request and its line, and write FILE as each process exits, for "
            "`gmlake view`; with its rank in the name. An existing folder, or a name that ends in "
            "a slash: a small summary of each process in it, for `gmlake report`",
        )
        add(
            "--report",
            action="store_true",
            help="print on stderr, as each process exits, its peak memory and how it was served",
        )
        for annex in annexes.hooked("run"):
            annex.add_options(parser)
        add("-m", dest="module", nargs=argparse.REMAINDER, help="a module to run, with arguments")
        add("-c", dest="code", nargs=argparse.REMAINDER, help="code to run, with arguments")
        add("script", nargs=argparse.REMAINDER, help="a script to run, with arguments")

    def run(self, args: argparse.Namespace) -> int:
        """Become the program: the process and its number stay, and nothing of ours is in it."""
        program = _program(args)
        settings = _settings(args)
        recorded = "" if args.record is None else _record_path(args.record)
        variables = dict(os.environ)
        for annex in annexes.hooked("run"):
            variables = annex.variables(args, variables)
        variables = environment(settings, variables, is_reporting=args.report, recorded=recorded)
        if not sys.executable:
            raise ValueError(
                "this Python does not know its own program, so it cannot start another"
            )
        command = [sys.executable, *_python_options(), *program]
        try:
            os.execve(sys.executable, command, variables)  # noqa: S606 (no shell is meant to run)
        except OSError as error:
            raise ValueError(f"{sys.executable} cannot be run: {error.strerror}") from None


def environment(
    settings: Settings, variables: Mapping[str, str], *, is_reporting: bool, recorded: str = ""
) -> dict[str, str]:
    """Return the environment for a process that gmlake serves, and for those it starts.

    recorded: the absolute path of the file for its recording, or of the folder, which ends in a
        slash; "": none.
    """
    added = {"GMLAKE_REPORT": "1"} if is_reporting else {}
    if recorded:
        added["GMLAKE_RECORD"] = recorded
    return with_startup({**variables, **settings.to_environment(), **added})


def _record_path(text: str) -> str:
    """Return where to record, a folder with a slash at its end. Raises ValueError for a file.

    A folder is made by each process, since the machines of a job may not share one.
    """
    if text.endswith("/") or (text and Path(text).is_dir()):
        return f"{Path(text).absolute()}/".replace("//", "/")
    return new_file(text)


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings from the options; ValueError for ones that no lake can be opened with."""
    knobs = dict(args.settings)
    given = Given(args.policy, args.capacity, knobs=knobs, on_oom=args.on_oom)
    settings = Settings.of(given)
    if args.on_oom_lines:
        settings = replace(settings, on_oom_lines=True)
    common.check_settings(settings.policy, settings.capacity_bytes or None, dict(settings.knobs))
    return settings


def _program(args: argparse.Namespace) -> list[str]:
    """Return the words that follow `python` on its command line."""
    for option, words in (("-m", args.module), ("-c", args.code)):
        if words is not None:
            if not words:
                raise ValueError(f"{option} of what? {_WHICH}")
            if args.script:  # as in -mNAME ARGUMENT
                raise ValueError(f"write a blank between {option} and {words[0]}")
            return [option, *words]
    script: list[str] = args.script[1:] if args.script[:1] == ["--"] else args.script
    if not script:
        raise ValueError(f"which program? {_WHICH}")
    if script[0] != "-" and not Path(script[0]).exists():
        raise ValueError(f"{script[0]}: no such file; {_WHICH}{_advice(script[0])}")
    return script


def _advice(name: str) -> str:
    """Return advice about a name that is not a script, but is often mistaken for one."""
    if re.fullmatch(r"python[0-9.]*", name):
        return "; leave python itself out"
    if name == "torchrun":
        return "; for torchrun, -m torch.distributed.run"
    found = shutil.which(name)
    return f"; that command is the script {found}" if found and _is_for_python(found) else ""


def _is_for_python(path: str) -> bool:
    """Whether a file begins as pip makes commands: with the Python that runs it."""
    with Path(path).open("rb") as file:
        first = file.readline(4096)
    return first.startswith(b"#!") and b"python" in first


def _python_options() -> list[str]:
    """Return the options that this Python was started with, such as -u, to be passed on."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ValueError(
            "gmlake run does nothing under the options -E, -I and -S of python; leave them out"
        )
    last = len(sys.orig_argv) - len(sys.argv) + 1
    options = sys.orig_argv[1 : last - 1]  # without the script, or the name after -m
    if options and re.fullmatch(r"-[A-Za-z]*[mc]", options[-1]):
        options[-1] = options[-1][:-1]
    return [option for option in options if option != "-"]


COMMAND = RunCommand()
