"""gmlake top."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from gmlake.commands import common
from gmlake.errors import Error
from gmlake.printable import printable
from gmlake.watching import processes
from gmlake.watching.counters import publishers, read
from gmlake.watching.devices import Nvml, device_of
from gmlake.watching.neighbours import who_share
from gmlake.watching.processes import command_line, environment
from gmlake.watching.table import MINUTE_S, Interval, picture

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gmlake.watching.counters import Counters
    from gmlake.watching.devices import Device
    from gmlake.watching.neighbours import Neighbour

_NS_PER_S: Final = 1e9
_SHORTEST_S: Final = 0.1
_LONGEST_S: Final = 3600.0
_KEYS: Final = 64
_LONG: Final = 10  # digits of a rank; longer ones are not real
_HOW: Final = "start it with GMLAKE_TOP=1, or call gmlake.publish() in it"
_Source = tuple[int, int]
"""A process, and a device as it numbers them."""

_EPILOG: Final = (
    "A process publishes if it is started with GMLAKE_TOP=1 or calls gmlake.publish(); only its "
    "own user can read that. Rates are since the last refresh; at first, and with --once, since "
    "the process began to publish. Exit code: 0; 2 if no process publishes."
)


class TopCommand(common.Command):
    """Follow running processes: how much they hold, and how requests are served."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        parser.add_argument(
            "pids",
            nargs="*",
            type=_pid,
            metavar="PID",
            help="processes (default: all of yours)",
        )
        parser.add_argument(
            "--interval",
            type=_interval,
            default=1.0,
            metavar="SECONDS",
            help="time between refreshes, at least 0.1 (default: 1)",
        )
        parser.add_argument(
            "--once", action="store_true", help="print one table and exit, as without a terminal"
        )
        parser.add_argument("--json", action="store_true", help="print JSON once and exit")

    def run(self, args: argparse.Namespace) -> int:
        """Look once, or until it is interrupted or the processes have ended."""
        watch = _Watch(tuple(args.pids))
        if args.json:
            watch.look()
            return _print_json(watch)
        if args.once or not sys.stdout.isatty():
            watch.look()
            common.print_report(watch.picture())
            return 0
        with suppress(KeyboardInterrupt):
            _follow(watch, args.interval)
        return 0


class _Watch:
    """The last two readings. pids: empty for every process."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._pids = pids
        self._before: dict[_Source, tuple[Counters, int]] = {}
        self._history: dict[_Source, deque[tuple[int, int]]] = {}
        self._nvml = Nvml()
        self.devices: list[Device] = []
        self.sharers: dict[int, list[Neighbour]] = {}
        self.intervals: list[Interval] = []
        self.problems: list[str] = []

    def look(self, *, may_be_none: bool = False) -> None:
        """Read the published counters; ValueError if there are none, unless that is allowed."""
        self.intervals, self.problems = [], []
        self.devices = self._nvml.devices()
        self.sharers = {each.index: who_share(each.uuid) for each in self.devices}
        readings: dict[_Source, tuple[Counters, int]] = {}
        for now in self._read():
            source = now.pid, now.device
            before, begin_ns = self._before.get(source, (None, now.start_ns))
            readings[source] = now, time.time_ns()
            seconds = (readings[source][1] - begin_ns) / _NS_PER_S
            variables = environment(now.pid)
            self.intervals.append(
                Interval(
                    now,
                    before,
                    seconds,
                    command_line(now.pid),
                    _number(variables.get("RANK", "")),
                    _number(variables.get("WORLD_SIZE", "")),
                    device_of(now.device, variables, self.devices),
                    self._last_minute(source, now.live_bytes, readings[source][1]),
                )
            )
        self._before = readings
        self._history = {source: self._history[source] for source in readings}
        if not may_be_none and not self.intervals:
            raise ValueError(self._absence())

    def _read(self) -> Iterator[Counters]:
        """Ask the processes that are looked at; one that does not answer is a problem."""
        for pid in publishers():
            if self._pids and pid not in self._pids:
                continue
            try:
                yield from read(pid)
            except Error as error:
                if processes.is_running(pid):
                    self.problems.append(f"process {pid}: {error}")

    def _last_minute(
        self, source: _Source, live_bytes: int, now_ns: int
    ) -> tuple[tuple[float, int], ...]:
        """Keep a reading; return those of the last minute, with their ages in seconds."""
        kept = self._history.setdefault(source, deque())
        kept.append((now_ns, live_bytes))
        while now_ns - kept[0][0] > MINUTE_S * _NS_PER_S:
            kept.popleft()
        return tuple(((now_ns - at_ns) / _NS_PER_S, live) for at_ns, live in kept)

    def picture(self) -> RenderableType:
        """Return bars and table, and a line for each process that does not answer."""
        from rich.console import Group
        from rich.text import Text

        problems = [Text(printable(problem), style="red") for problem in self.problems]
        return Group(*picture(self.intervals, self.sharers), *problems)

    def _absence(self) -> str:
        """Say why there is nothing to show."""
        if self.problems:
            return self.problems[0]
        if not self._pids:
            return f"no process of yours publishes its counters; {_HOW}"
        pid = self._pids[0]
        if not processes.is_running(pid):
            return f"there is no process {pid}"
        if not processes.is_own(pid):
            return f"process {pid} is of another user; only its own user can follow it"
        return f"process {pid} publishes no counters; {_HOW}"


def _follow(watch: _Watch, interval_s: float) -> None:
    """Draw until no process publishes any more."""
    from rich.console import Console
    from rich.live import Live

    watch.look()
    with (
        _keyboard() as is_quit_within,
        Live(watch.picture(), console=Console(), auto_refresh=False) as live,
    ):
        live.refresh()
        while watch.intervals and not is_quit_within(interval_s):
            watch.look(may_be_none=True)
            if watch.intervals:
                live.update(watch.picture(), refresh=True)


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds or for the key q, and returns whether q was pressed.

    The terminal hands over each key at once meanwhile. A process in the background leaves it alone.
    """
    file = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
    if file < 0 or _is_in_background(file):
        yield _pause
        return
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file, termios.TCSANOW)
        yield partial(_is_pressed, file)
    finally:
        termios.tcsetattr(file, termios.TCSANOW, before)


def _is_in_background(terminal: int) -> bool:
    """Whether this process would be stopped for changing or reading its terminal."""
    with suppress(OSError):  # it controls another one, or none
        return os.tcgetpgrp(terminal) != os.getpgrp()
    return False


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _is_pressed(file: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([file], [], [], left)[0]:
            keys = os.read(file, _KEYS)
            if not keys:  # the terminal is gone
                time.sleep(max(0.0, end - time.monotonic()))
            elif b"q" in keys.lower():
                return True
    return False


def _print_json(watch: _Watch) -> int:
    lakes = [interval.to_dict() for interval in watch.intervals]
    devices = [device.to_dict() for device in watch.devices]
    sharers = {index: [one._asdict() for one in all_] for index, all_ in watch.sharers.items()}
    found = {"lakes": lakes, "devices": devices, "sharers": sharers, "unreadable": watch.problems}
    common.print_json(found)
    return 0


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _LONG else None


# ---- arguments


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 10 and int(text)):  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not the number of a process")
    return int(text)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a number of seconds from {_SHORTEST_S} to {_LONGEST_S:.0f}"
        )
    return seconds


COMMAND = TopCommand()
