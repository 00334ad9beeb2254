"""Runs a script on the stand-in GPU, and reads what it recorded there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gmlake.errors import Error
from gmlake.pytorch.session_settings import with_startup
from gmlake.snapshots.whole import Snapshot, load
from gmlake.standin import launcher

if TYPE_CHECKING:
    from gmlake.standin.devices import Device
    from gmlake.trace import Trace

SERVED_BYTES: Final = 1 << 45
"""What the stand-in hands out, so that a script runs that needs more than the device has."""

_TOO_LONG: Final = 124  # exit code of a script that had asked for no memory when its time was up
_GRACE_SECONDS: Final = 60.0  # for a script whose time is up to write its recording

_SETTINGS: Final = ("GMLAKE_STANDIN_", "GMLAKE_FORECAST")
"""Variables of other runs on the stand-in, which a forecast does not take over."""

_TAIL_LINES: Final = 20

MORE_TIME: Final = "--timeout SECONDS gives it more, and --show-output shows what it prints"

_ZEROS: Final = (
    "Kernels compute nothing on the stand-in GPU, and what is read from it is zeros; if this line "
    "needs a value, give it one while GMLAKE_FORECAST is in the environment"
)
_WITHOUT_CUDNN: Final = "With torch.backends.cudnn.enabled = False it runs, and needs other memory"
_OF_A_JOB: Final = (
    "The script is one process of a job: gmlake forecast --ranks N runs one of N, without torchrun "
    "or another launcher"
)
_JOBS: Final = re.compile(r"\b(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b|\bNCCL\b")
"""What the error of a script speaks of that misses the other processes of its job."""


class ForecastError(Error):
    """A script that cannot be forecast; the text says where it ended, and what to pass.

    reason: the first part alone. output: the last lines that the script printed, where these say
    more. was_refused: whether it ended since it was refused memory.
    """

    def __init__(self, reason: str, advice: str = "", output: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}. {advice}" if advice else reason)
        self.reason = reason
        self.output = tuple(output)
        self.was_refused = "OutOfMemoryError" in "\n".join((reason, *output))


@dataclass(frozen=True)
class Run:
    """One run of the script: its recording, the process that needed most of several."""

    trace: Trace
    snapshot: Snapshot
    known: dict[str, Any]
    processes: int


@dataclass(frozen=True)
class Runner:
    """Runs the script on the stand-in, with one value of its batch or another.

    Raises ValueError for a program that is none, and a rank that there is not.
    """

    program: list[str]
    device: Device
    steps: int
    ranks: int
    rank: int
    is_shown: bool

    def __post_init__(self) -> None:
        if not self.program:
            raise ValueError("which program? Name a script, or -m MODULE")
        if self.program[0].endswith(".ipynb"):
            raise ValueError(
                f"{self.program[0]} is a notebook; `jupyter nbconvert --to script` makes a script "
                "of it"
            )
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank {self.rank} of {self.ranks}: ranks are counted from 0")

    @property
    def title(self) -> str:
        """The script's own name."""
        return title_of(self.program)

    def run(
        self,
        longest_seconds: float,
        batch: tuple[str, int] | None = None,
        *,
        served_bytes: int = SERVED_BYTES,
        assume: str = "even",
    ) -> Run:
        """Run it once, with a batch of its own: what sets it, and the value.

        served_bytes: what it may have of the device. assume: of what is not known (asked.py).

        Raises ForecastError, also where it takes longer than it may.
        """
        program, variables = list(self.program), self._variables(served_bytes)
        variables["GMLAKE_FORECAST_ASSUME"] = assume
        variables["GMLAKE_FORECAST_SECONDS"] = str(longest_seconds)
        if batch is not None:
            name, value = batch
            if name.startswith("-"):
                program = with_option(program, name, value)
            else:
                variables[name] = str(value)
        with tempfile.TemporaryDirectory(prefix="gmlake-forecast-") as made:
            folder = Path(made)
            variables["GMLAKE_FORECAST"] = str(folder)
            seconds = longest_seconds + _GRACE_SECONDS
            code, tail = end_of(program, variables, seconds, folder, is_shown=self.is_shown)
            if code in (None, _TOO_LONG):
                raise ForecastError(
                    f"{self.title} took longer than {longest_seconds:.0f} s", MORE_TIME
                )
            return _read(folder, code or 0, tail, self.title, is_alone=self.ranks == 1)

    def _variables(self, served_bytes: int) -> dict[str, str]:
        devices = min(self.ranks, launcher.MOST_DEVICES)
        settings = {
            "devices": str(devices),
            "served": str(served_bytes),
            **self.device.settings(),
        }
        variables = with_startup(launcher.environment(settings))
        for name in os.environ:
            is_setting = name.startswith(_SETTINGS) and name not in launcher.variables_of(settings)
            if is_setting or name == "CUDA_VISIBLE_DEVICES":
                del variables[name]
        variables["GMLAKE_FORECAST_STEPS"] = str(self.steps)
        # Nothing of this run is worth a place among the user's experiments.
        variables.setdefault("WANDB_MODE", "disabled")
        if self.ranks > 1:
            variables |= launcher.variables_of_rank(self.rank, self.ranks, devices)
        return variables


def title_of(program: Sequence[str]) -> str:
    """Return the own name of what follows `python`."""
    words = program[1:] if program[0] == "-m" else program
    return Path(words[0]).name if words else program[0]


def end_of(
    program: Sequence[str],
    variables: Mapping[str, str],
    seconds: float,
    folder: Path,
    *,
    is_shown: bool,
) -> tuple[int | None, list[str]]:
    """Run `python *program` without input, and end what it started and left.

    Returns its exit code, None if it took longer, and the last lines that it printed; those that
    are shown go to standard error instead. folder: has room for what is printed.
    """
    with (folder / "output").open("w+b") as output:
        shown: Any = sys.stderr if is_shown else output
        process = subprocess.Popen(  # noqa: S603 (the user's own program)
            [sys.executable, *program],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=shown,
            stderr=shown,
            start_new_session=True,
        )
        code = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]


def _read(folder: Path, code: int, tail: list[str], title: str, *, is_alone: bool) -> Run:
    """Return the recording of the process that needed most."""
    paths = sorted(folder.glob("*.json"))
    each = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    path, known = max(
        each, key=lambda one: _peak(one[1]), default=(folder, dict[str, Any](devices=[]))
    )
    advice = _advice(tail, is_alone=is_alone)
    if not _peak(known)[0]:
        if code:
            reason = f"{title} {_ending(code)} before anything was recorded"
            raise ForecastError(reason, advice, tail)
        raise ForecastError(
            f"{title} used no GPU: it asked PyTorch for no CUDA memory", _advice(tail), tail
        )
    if known["error"]:
        raise ForecastError(*_why_it_ended(known["error"], title, is_alone=is_alone))
    if code and known["why"] == "the program ended":
        reason = f"{title} {_ending(code)} before its steps repeated"
        raise ForecastError(reason, advice, tail)
    seen = load(path.with_suffix(".pickle"))
    trace = max((one.trace for one in seen), key=lambda one: one.peak_live_bytes)
    return Run(replace(trace, name=title), seen, known, len(paths))


def _peak(known: Mapping[str, Any]) -> tuple[int, int]:
    peaks = ((one["reserved_bytes"], one["allocated_bytes"]) for one in known["devices"])
    return max(peaks, default=(0, 0))


def _advice(output: list[str], *, is_alone: bool = False) -> str:
    """Return what follows the reason: what may help, and what announces the output."""
    job = f"{_OF_A_JOB}. " if is_alone and _JOBS.search("\n".join(output)) else ""
    return job + ("It printed last:" if output else "")


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {launcher.name_of_signal(-code)}"
    return f"ended with exit code {code}"


def _why_it_ended(error: list[str], title: str, *, is_alone: bool) -> tuple[str, str]:
    is_of_a_job = is_alone and _JOBS.search(error[-1])
    advice = _WITHOUT_CUDNN if "cuDNN error: the stand-in" in error[-1] else _ZEROS
    return f"{title} {where_of(error)}", _OF_A_JOB if is_of_a_job else advice


def where_of(error: Sequence[str]) -> str:
    """Return by what something ended and at which line, from the lines of a traceback."""
    text = "".join(error)
    last = text.strip().splitlines()[-1]
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.+)', text)
    own = [each for each in places if "site-packages" not in each[0] and "<" not in each[0]]
    if not places:
        return f"ended by {last!r}"
    file, line, function, source = (own or places)[-1]
    return f"ended by {last!r} at {file}:{line} in {function}(), which has {source.strip()!r}"


def option_of(program: Sequence[str], name: str) -> str | None:
    """Return the value of a script's option; None if it is not given."""
    for place, word in enumerate(program):
        if word == name and place + 1 < len(program):
            return program[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def with_option(program: Sequence[str], name: str, value: int) -> list[str]:
    """Return the command line with another value of an option, added where it has none."""
    made = list(program)
    for place, word in enumerate(made):
        if word == name and place + 1 < len(made):
            made[place + 1] = str(value)
            return made
        if word.startswith(f"{name}="):
            made[place] = f"{name}={value}"
            return made
    return [*made, name, str(value)]
