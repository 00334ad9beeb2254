"""gmlake forecast."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NoReturn

from gmlake.annexes import hooked
from gmlake.commands import common
from gmlake.pictures.page import write_page
from gmlake.printable import printable
from gmlake.snapshots.whole import report_of
from gmlake.standin import servers
from gmlake.standin.batches import NO_SEARCH
from gmlake.standin.devices import DEFAULT, DEVICES
from gmlake.standin.forecasts import MOST_SECONDS, MOST_STEPS, Forecast, forecast
from gmlake.standin.launcher import on_signals
from gmlake.standin.runs import ForecastError
from gmlake.standin.servers import forecast_server

_USAGE: Final = """gmlake forecast [options] SCRIPT [ARGUMENT ...]
       gmlake forecast [options] -m MODULE [ARGUMENT ...]
       gmlake forecast [options] -- vllm serve MODEL [ARGUMENT ...]
       gmlake forecast [options] -- python -m sglang.launch_server [ARGUMENT ...]"""
_EPILOG: Final = (
    "Options come before the script; what follows it is the script's. Kernels compute nothing: a "
    "loss is 0, and files that the script writes have no meaning. Exit code: 0 if the device has "
    "enough memory with one of the allocators, 1 if not, 3 if that is not known, 4 if --max or "
    "--baseline allows less, 2 for a wrong option, a script that could not be forecast, or a file "
    "that could not be written."
)


class ForecastCommand(common.Command):
    """Run a training script without a GPU, and foresee what memory it needs on one."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = _USAGE
        parser.epilog = _EPILOG
        # As in `--batch --batch-size=4`: argparse asks this what may be a value all the same.
        vars(parser)["_negative_number_matcher"] = re.compile(r"-[\w-]*=\d[\d,]*$|-\.?\d")
        add = parser.add_argument
        add(
            "--on",
            "--device",
            default=DEFAULT,
            metavar="NAME|SIZE",
            help=f"the GPU: {', '.join(DEVICES)}, 40GiB or NAME:40GiB (%(default)s)",
        )
        add(
            "--steps",
            type=int,
            default=MOST_STEPS,
            metavar="N",
            help="end after N steps, if they have not repeated before (%(default)s)",
        )
        add("--to-end", action="store_true", help="run the whole script, whatever repeats")
        add(
            "--batch",
            metavar="NAME=A[,B]",
            help="an option of the script or an environment variable that sets its batch, and "
            "the values to run: find the largest that fits (an option as --batch-size is found; "
            f"{NO_SEARCH}: find none)",
        )
        add("--ranks", type=int, default=1, metavar="N", help="processes of the job (1)")
        add("--rank", type=int, default=0, metavar="N", help="which of them to run (0)")
        add(
            "--timeout",
            type=float,
            default=MOST_SECONDS,
            metavar="SECONDS",
            help="what a run may take at most (%(default)s)",
        )
        add("-o", "--output", metavar="PAGE", help="draw the memory of the run as one HTML page")
        add("--record", metavar="FILE", help="keep the recording, for view, replay, plan and query")
        add("--show-output", action="store_true", help="pass on what the script prints")
        add(
            "--context",
            type=int,
            action="append",
            default=[],
            metavar="N",
            help="of a server: how many requests of N tokens it holds at once (may be repeated)",
        )
        add("--vary", action="store_true", help="of a server: boot it with other settings, too")
        for budget in hooked("forecast"):
            budget.add_options(parser)
        common.add_json_option(parser)
        add("-m", dest="module", nargs=argparse.REMAINDER, help="a module to run, with arguments")
        add("script", nargs=argparse.REMAINDER, help="a script to run, with arguments")

    def run(self, args: argparse.Namespace) -> int:
        """Run, foresee, answer."""
        try:
            server = servers.program_of(_words(args))
            budgets = [one(args, is_server=server is not None) for one in hooked("forecast")]
            telling = nullcontext() if args.show_output else common.telling()
            # Ctrl-C ends the script by itself; what is ignored, as by nohup, stays ignored.
            numbers = (signal.SIGTERM, signal.SIGHUP)
            ending = [each for each in numbers if signal.getsignal(each) == signal.SIG_DFL]
            with on_signals(ending, _end), telling as tell:
                found = _forecast(args, tell) if not server else forecast_server(server, args, tell)
        except ForecastError as error:
            common.print_error(error)
            for line in error.output:
                sys.stderr.write(f"  {printable(line)}\n")
            return common.BAD_INPUT
        common.show(found, as_json=args.json)
        try:
            if isinstance(found, Forecast):
                _keep(found, args)
            codes: list[int] = [budget.judge(_words(args), found) for budget in budgets]
        except OSError as error:
            common.print_error(f"cannot write {error.filename}: {error.strerror}")
            return common.BAD_INPUT  # 1 says that the script does not fit
        return max([{True: 0, False: common.DOES_NOT_FIT, None: 3}[found.fits], *codes])


def _words(args: argparse.Namespace) -> list[str]:
    if args.module:
        return ["-m", *args.module]
    script: list[str] = args.script[1:] if args.script[:1] == ["--"] else args.script
    return script


def _program(args: argparse.Namespace) -> list[str]:
    script = _words(args)
    if args.module:
        return script
    if script and not Path(script[0]).exists():
        raise ValueError(f"{script[0]}: no such file; name a script, or -m MODULE")
    if "--on" in script[:-1] and script[script.index("--on") + 1] in DEVICES:
        raise ValueError(
            "options of gmlake come before the script: gmlake forecast --on "
            f"{script[script.index('--on') + 1]} {script[0]}"
        )
    return script


def _keep(found: Forecast, args: argparse.Namespace) -> None:
    """Write what else is asked for. Raises OSError."""
    if args.record is not None:
        found.snapshot.save(args.record)
    if args.output is not None:
        write_page(report_of(found.snapshot), args.output)


def _end(number: int, _: object) -> NoReturn:
    """End this process, and first the script, which has a session of its own."""
    raise SystemExit(128 + number)


def _forecast(args: argparse.Namespace, tell: Callable[[str], None] | None) -> Forecast:
    return forecast(
        _program(args),
        args.on,
        steps=args.steps,
        to_end=args.to_end,
        batch=args.batch,
        ranks=args.ranks,
        rank=args.rank,
        timeout=args.timeout,
        is_shown=args.show_output,
        progress=tell,
    )


COMMAND = ForecastCommand()
