"""Foresees what memory a training script needs on a GPU, by running it on the stand-in."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gmlake.errors import Error
from gmlake.fitting import fit
from gmlake.printable import printable
from gmlake.pytorch.session_settings import with_startup
from gmlake.replaying import replay
from gmlake.snapshots.opening import load_traces
from gmlake.snapshots.queries import query
from gmlake.snapshots.whole import Snapshot
from gmlake.standin import launcher
from gmlake.standin.beyond import Beyond, beyond
from gmlake.standin.devices import DEFAULT, Device, device_of
from gmlake.tables import Printed, new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from gmlake.trace import Trace

POLICIES: Final = {
    "caching": "PyTorch's default",
    "expandable": "expandable segments",
    "stitch": "gmlake",
}
"""What is compared, and its name in a sentence."""

MOST_STEPS: Final = 8

_SERVED_BYTES: Final = 1 << 45
"""What the stand-in hands out, so that a script runs that needs more than the device has."""

_MOST_DEVICES: Final = 8
"""Of one host, as most have them."""

_BATCH_OPTIONS: Final = (
    *("--batch", "--batch-size", "--batch_size", "--micro-batch-size", "--micro_batch_size"),
    *("--per_device_train_batch_size", "--per-device-train-batch-size", "-b"),
)
"""Options of scripts that say their batch, as most are called."""

_SETTINGS: Final = ("GMLAKE_STANDIN_", "GMLAKE_FORECAST")
"""Variables of other runs on the stand-in, which a forecast does not take over."""

_TAIL_LINES: Final = 20

_LONGER: Final = 5.0
"""A run with another batch may take so many times as long as the first,"""

_LEAST_SECONDS: Final = 60.0
"""and this besides: a large batch may be long in the making on a CPU."""

_MOST_REFINED: Final = 8
_GRANULE_BYTES: Final = 2 << 20  # the least that fit() takes

_ZEROS: Final = (
    "Kernels compute nothing on the stand-in GPU, and what is read from it is zeros; if this line "
    "needs a value, give it one while GMLAKE_FORECAST is in the environment"
)


class ForecastError(Error):
    """A script that cannot be forecast; the text says where it ended, and what to pass.

    reason: the first part alone. output: the last lines that the script printed, where these say
    more.
    """

    def __init__(self, reason: str, advice: str = "", output: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}. {advice}" if advice else reason)
        self.reason = reason
        self.output = tuple(output)


@dataclass(frozen=True)
class PolicyNeed:
    """What one allocator needs for the script. Sizes in bytes.

    reserved_bytes: at most, where memory is plentiful. smallest_bytes: the least that PyTorch must
    have; with it no request is refused. needed_bytes: of the whole device, CUDA's own included.
    fits: whether the device has that, with the error of the figure. largest_batch: None if the
    script's batch is not known.
    """

    policy: str
    reserved_bytes: int
    smallest_bytes: int
    needed_bytes: int
    fits: bool
    largest_batch: int | None = None


@dataclass(frozen=True)
class Batch:
    """Where the script takes its batch from, and what was run with.

    name: an option of the script, or an environment variable. given: of the forecast itself.
    recorded: the two from which the others were foreseen. confirmed: those that were run, too.
    """

    name: str
    given: int
    recorded: tuple[int, ...] = ()
    confirmed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Forecast(Printed):
    """The result of gmlake.forecast(); prints as an answer and a table. Sizes in bytes.

    steps, why: how many steps were run, and why no more. peak_live_bytes: the most that is
    allocated at once. beyond: what CUDA and its libraries take. held: the largest lines at the
    peak, each with its bytes. notes: what the figures do not contain. snapshot: the recording.
    """

    program: str
    device: Device
    torch: str
    steps: int
    why: str
    peak_live_bytes: int
    beyond: Beyond
    needs: tuple[PolicyNeed, ...]
    held: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    batch: Batch | None = None
    world: int = 1
    rank: int = 0
    snapshot: Snapshot = field(default_factory=Snapshot, repr=False, compare=False)

    @property
    def fits(self) -> bool:
        """Whether the device has enough memory with one of the allocators."""
        return any(need.fits for need in self.needs)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure, as `gmlake forecast --json` prints it."""
        found = asdict(replace(self, snapshot=Snapshot()))
        del found["snapshot"]
        return {"schema": "gmlake-forecast-1", **found, "fits": self.fits}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._needs_in_words(), "bold")
        yield Text(self._fits_in_words(), "green" if self.fits else "red")
        if self.held:
            line, size_bytes = self.held[0]
            yield Text(f"most is held at the peak by {printable(line)}: {format_size(size_bytes)}")
        yield self._table()
        yield Text(self._basis(), "dim")
        for note in self.notes:
            yield Text(printable(note))

    def _needs_in_words(self) -> str:
        said = [
            f"{format_size(need.needed_bytes)} with {POLICIES[need.policy]}" for need in self.needs
        ]
        return f"peak {format_size(self.peak_live_bytes)} live; needs {', '.join(said)}"

    def _fits_in_words(self) -> str:
        within = f"{self.device.label} ({format_size(self.device.memory_bytes)})"
        yes = [POLICIES[need.policy] for need in self.needs if need.fits]
        if len(yes) == len(self.needs):
            said = f"fits {within} with all of them"
        elif yes:
            said = f"fits {within} with {' and '.join(yes)} only"
        else:
            said = f"does not fit {within}"
        if self.batch is not None:
            batches = ", ".join(f"{need.largest_batch:,}" for need in self.needs)
            said += f"; the largest {self.batch.name} that fits: {batches}"
        return said

    def _table(self) -> RenderableType:
        table = new_table(None)
        table.add_column("allocator", no_wrap=True)
        for heading in ("reserved where\nthere is room", "PyTorch\nneeds", "on the\ndevice"):
            table.add_column(heading, justify="right", no_wrap=True)
        for need in self.needs:
            table.add_row(
                POLICIES[need.policy],
                format_size(need.reserved_bytes),
                format_size(need.smallest_bytes),
                format_size(need.needed_bytes),
            )
        return table

    def _basis(self) -> str:
        ran = f"{self.steps} steps of {printable(self.program)}" if self.steps else self.program
        rank = f", rank {self.rank} of {self.world}" if self.world > 1 else ""
        return (
            f"foreseen from {ran} ({self.why}{rank}) on a stand-in for the GPU, with PyTorch "
            f"{self.torch}; {format_size(self.beyond.total_bytes)} are CUDA's own, give or take "
            f"{format_size(self.beyond.error_bytes)}"
        )


@dataclass(frozen=True)
class _Run:
    """One run of the script: its recording, the process that needed most of several."""

    trace: Trace
    snapshot: Snapshot
    known: dict[str, Any]
    processes: int


def forecast(  # noqa: PLR0913 (each is a choice of its own)
    program: Sequence[str],
    device: str = DEFAULT,
    *,
    steps: int = MOST_STEPS,
    batch: str | None = None,
    ranks: int = 1,
    rank: int = 0,
    is_shown: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Forecast:
    """Run a script without a GPU and foresee what memory it needs on one.

    program: what follows `python` on a command line: a script, or -m and a module, and arguments.
    device: a name of gmlake.standin.devices, or the size of one like the default.
    steps: after so many calls of an optimizer the run ends even if they differ; it ends earlier
        once they repeat, or with the script.
    batch: "NAME=A,B": an option of the script (with dashes) or an environment variable, and the two
        values to run it with; the largest that fits is foreseen from these and then run. "NAME=A"
        runs A and twice A. None: an option as --batch-size among the script's arguments, if any.
    ranks, rank: what one process of a job of so many needs.
    is_shown: what the script prints is passed on, to standard error.
    progress: called with a few words before each part.

    Raises ForecastError if the script ends before anything is known, StandinMissingError if there
    is no CUDA build of PyTorch, ValueError for a wrong argument.
    """
    chosen = device_of(device)
    version = launcher.check_pytorch()
    say = progress or (lambda _: None)
    runner = _Runner(list(program), chosen, steps, (rank, ranks), is_shown=is_shown)
    name, values = _batch_of(batch, runner.program)
    say(f"running {runner.title}")
    began = time.monotonic()
    first = runner.run(name, values[0] if name and batch else None)
    longest = _LONGER * (time.monotonic() - began) + _LEAST_SECONDS
    say("replaying")
    found = _forecast_of(first, runner, chosen, version)
    if not name:
        return found
    return _with_batches(found, first, _Batches(runner, name, values, longest, say))


class _Runner:
    """Runs the script on the stand-in, with one value of its batch or another."""

    def __init__(
        self,
        program: list[str],
        device: Device,
        steps: int,
        place: tuple[int, int],
        *,
        is_shown: bool,
    ) -> None:
        rank, ranks = place
        if not program:
            raise ValueError("which program? Name a script, or -m MODULE")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} of {ranks}: ranks are counted from 0")
        if steps < 1:
            raise ValueError(f"{steps} steps: at least one is needed")
        self.program = program
        self._device = device
        self._steps = steps
        self._ranks = ranks
        self._rank = rank
        self._is_shown = is_shown

    @property
    def title(self) -> str:
        """The script's own name."""
        words = self.program[1:] if self.program[0] == "-m" else self.program
        return Path(words[0]).name if words else self.program[0]

    def run(
        self,
        name: str | None = None,
        value: int | None = None,
        longest_seconds: float | None = None,
    ) -> _Run:
        """Run it once. Raises ForecastError, also where it takes longer than it may."""
        program, variables = list(self.program), self._variables()
        if name is not None and value is not None:
            if name.startswith("-"):
                program = _with_option(program, name, value)
            else:
                variables[name] = str(value)
        with tempfile.TemporaryDirectory(prefix="gmlake-forecast-") as made:
            folder = Path(made)
            variables["GMLAKE_FORECAST"] = str(folder)
            with (folder / "output").open("w+b") as output:
                process = subprocess.Popen(  # noqa: S603 (the user's own program)
                    [sys.executable, *program],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr if self._is_shown else output,
                    stderr=None if self._is_shown else output,
                    start_new_session=True,
                )
                try:
                    code = process.wait(longest_seconds)
                except subprocess.TimeoutExpired:
                    raise ForecastError(
                        f"{self.title} took longer than {longest_seconds:.0f} s"
                    ) from None
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                output.seek(0)
                said = output.read().decode(errors="replace").splitlines()
            return _read(folder, code, said, self.title)

    def _variables(self) -> dict[str, str]:
        devices = min(self._ranks, _MOST_DEVICES)
        settings = {
            "devices": str(devices),
            "name": f"{self._device.label} (gmlake stand-in, no GPU)",
            "capacity": str(self._device.memory_bytes),
            "served": str(_SERVED_BYTES),
            "capability": self._device.capability,
            "multiprocessors": str(self._device.multiprocessors),
        }
        variables = with_startup(launcher.environment(settings))
        for name in os.environ:
            is_setting = name.startswith(_SETTINGS) and name not in launcher.variables_of(settings)
            if is_setting or name == "CUDA_VISIBLE_DEVICES":
                del variables[name]
        variables["GMLAKE_FORECAST_STEPS"] = str(self._steps)
        # Nothing of this run is worth a place among the user's experiments.
        variables.setdefault("WANDB_MODE", "disabled")
        if self._ranks > 1:
            variables |= {
                "WORLD_SIZE": str(self._ranks),
                "RANK": str(self._rank),
                "LOCAL_RANK": str(self._rank % devices),
                "LOCAL_WORLD_SIZE": str(devices),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
                "GMLAKE_FORECAST_RANKS": str(self._ranks),
            }
        return variables


def _read(folder: Path, code: int, said: list[str], title: str) -> _Run:
    """Return the recording of the process that needed most."""
    best: tuple[tuple[int, int], Path, dict[str, Any]] | None = None
    paths = sorted(folder.glob("*.json"))
    for path in paths:
        known = json.loads(path.read_text(encoding="utf-8"))
        peak = max(
            (each["reserved_bytes"], each["allocated_bytes"]) for each in known["devices"].values()
        )
        if peak[0] and (best is None or peak > best[0]):
            best = peak, path, known
    tail = said[-_TAIL_LINES:]
    if best is None:
        if code:
            raise ForecastError(
                f"{title} {_ending(code)} before anything was recorded",
                _printed(tail),
                tail,
            )
        raise ForecastError(
            f"{title} used no GPU: it asked PyTorch for no CUDA memory", _printed(tail), tail
        )
    known = best[2]
    if known["error"]:
        raise ForecastError(_why_it_ended(known["error"], title), _ZEROS)
    if code and known["why"] == "the program ended":
        raise ForecastError(
            f"{title} {_ending(code)} before its steps repeated", _printed(tail), tail
        )
    recording = best[1].with_suffix(".pickle")
    traces = load_traces(recording)
    trace = max(traces, key=lambda one: one.peak_live_bytes)
    return _Run(replace(trace, name=title), Snapshot.load(recording), known, len(paths))


def _printed(output: list[str]) -> str:
    return "It printed last:" if output else ""


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {launcher.name_of_signal(-code)}"
    return f"ended with exit code {code}"


def _why_it_ended(error: list[str], title: str) -> str:
    """Return one line: where the script ended, by what, and what may be done about it."""
    text = "".join(error)
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.+)', text)
    own = [each for each in places if "site-packages" not in each[0] and "<" not in each[0]]
    file, line, function, source = (own or places or [(title, "?", "?", "")])[-1]
    return (
        f"{title} ended by {text.strip().splitlines()[-1]!r} at {file}:{line} in {function}(), "
        f"which has {source.strip()!r}"
    )


def _forecast_of(run: _Run, runner: _Runner, device: Device, version: str) -> Forecast:
    extra = beyond(run.known["calls"], world=run.known["world"], is_checked=device.is_checked)
    seen = query(run.snapshot, "peak", "line", None, 3)
    held = tuple((row.key, row.size_bytes) for row in seen.answers[0].rows[:3])
    return Forecast(
        program=runner.title,
        device=device,
        torch=version,
        steps=run.known["steps"],
        why=run.known["why"],
        peak_live_bytes=run.trace.peak_live_bytes,
        beyond=extra,
        needs=_needs(run, device, extra),
        held=held,
        notes=tuple(_notes(run)),
        world=run.known["world"],
        rank=run.known["rank"],
        snapshot=run.snapshot,
    )


def _needs(run: _Run, device: Device, extra: Beyond) -> tuple[PolicyNeed, ...]:
    report = fit(run.trace, policies=list(POLICIES))
    roomy = {
        one.policy: one.peak_reserved_bytes for one in replay(run.trace, list(POLICIES)).results
    }
    return tuple(
        PolicyNeed(
            need.policy,
            roomy[need.policy],
            need.smallest_bytes,
            need.smallest_bytes + extra.total_bytes,
            need.smallest_bytes + extra.total_bytes + extra.error_bytes <= device.memory_bytes,
        )
        for need in report.needs
    )


def _notes(run: _Run) -> Iterator[str]:
    if run.known["why"] == "steps differ":
        yield (
            f"no two of {run.known['steps']} steps were alike: another may need more; --steps N "
            "runs more of them"
        )
    elif run.known["why"] == "the program ended" and not run.known["steps"]:
        yield "no optimizer made a step; all of the program was run"
    for asked in run.known["answers"][:3]:
        yield (
            f"memory depends on data at {asked['file']}:{asked['line']}: {asked['function']}() has "
            "no rows on the stand-in, so what follows from it is missing"
        )
    if run.processes > 1:
        yield f"{run.processes} processes used the GPU; this is the one that needs most"


# ---- batches


def _batch_of(given: str | None, program: list[str]) -> tuple[str | None, tuple[int, int]]:
    """Return the name of what sets the batch, and the two values to record."""
    if given is None:
        for name in _BATCH_OPTIONS:
            value = _option(program, name)
            if value is not None and value.isdigit() and int(value):
                return name, (int(value), 2 * int(value))
        return None, (0, 0)
    name, _, text = given.partition("=")
    numbers = text.split(",")
    if not name or not all(each.isdigit() and int(each) for each in numbers) or len(numbers) > 2:  # noqa: PLR2004
        raise ValueError(f"{given!r} is not NAME=A or NAME=A,B, as --batch-size=8,16 or BATCH=8")
    if not name.startswith("-") and _option(program, f"--{name}") is not None:
        name = f"--{name}"
    first = int(numbers[0])
    second = int(numbers[1]) if len(numbers) > 1 else 2 * first
    if first == second:
        raise ValueError(f"{given!r}: two different batches are needed")
    return name, (first, second)


def _option(program: list[str], name: str) -> str | None:
    """Return the value of a script's option; None if it is not given."""
    for place, word in enumerate(program):
        if word == name and place + 1 < len(program):
            return program[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _with_option(program: list[str], name: str, value: int) -> list[str]:
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


@dataclass(frozen=True)
class _Batches:
    """How other batches are run."""

    runner: _Runner
    name: str
    recorded: tuple[int, int]
    longest_seconds: float
    say: Callable[[str], None]

    def run(self, batch: int) -> _Run:
        """Run one. Raises ForecastError."""
        self.say(f"running {self.runner.title} with {self.name} {batch:,}")
        return self.runner.run(self.name, batch, self.longest_seconds)


def _with_batches(found: Forecast, first: _Run, batches: _Batches) -> Forecast:
    """Foresee the largest batch from two recordings, and run what was foreseen."""
    name, values = batches.name, batches.recorded
    try:
        second = batches.run(values[1])
    except ForecastError as error:
        note = f"the largest {name} is not known: with {values[1]:,}, {error.reason}"
        return replace(found, notes=(*found.notes, note))
    room = found.device.memory_bytes - found.beyond.total_bytes - found.beyond.error_bytes
    batches.say("extrapolating")
    report = fit([first.trace, second.trace], max(room, _GRANULE_BYTES), values, list(POLICIES))
    runs = {values[0]: _smallest(found), values[1]: _smallest_of(second)}
    notes = list(found.notes)
    if report.why_line:
        notes.append(f"other batches are extrapolated roughly: {report.why_line}")
    largest = {}
    for one in report.largest:
        largest[one.policy], note = _confirmed(one.policy, one.batch, runs, room, batches)
        notes += [note] if note and note not in notes else []
    return replace(
        found,
        needs=tuple(replace(need, largest_batch=largest[need.policy]) for need in found.needs),
        notes=tuple(notes),
        batch=Batch(name, values[0], values, tuple(sorted(set(runs) - set(values)))),
    )


def _confirmed(
    policy: str, foreseen: int, runs: dict[int, dict[str, int]], room: int, batches: _Batches
) -> tuple[int, str]:
    """Return the largest batch that was run and fits, or the one foreseen and why it was not run.

    runs: what each policy needs with each batch that was run; more are added.
    """
    batch: int | None = foreseen
    for _ in range(_MOST_REFINED):
        if batch and batch not in runs:
            try:
                runs[batch] = _smallest_of(batches.run(batch))
            except ForecastError as error:
                return batch, f"the largest {batches.name} is foreseen, not run: {error.reason}"
        batch = _nearer({size: needs[policy] for size, needs in runs.items()}, room)
        if batch is None:
            break
    low = max((size for size, needs in runs.items() if needs[policy] <= room), default=0)
    if batch is None:
        return low, ""
    return low, f"a {batches.name} above {low:,} may fit, too: {len(runs)} were run"


def _nearer(needs: dict[int, int], room: int) -> int | None:
    """Return the batch to try next, on a line through those that were run; None: one is right.

    needs: bytes by batch.
    """
    low = max((size for size, need in needs.items() if need <= room), default=0)
    above = [size for size in needs if size > low]
    below = [size for size in needs if size < low]
    high = min(above, default=0)
    if high == low + 1:
        return None
    if high:  # between one that fits and one that does not
        at_low = needs.get(low, 0)
        step = (high - low) * (room - at_low) // max(needs[high] - at_low, 1)
        return min(max(low + step, low + 1), high - 1)
    if not below:
        return 2 * low
    growth = (needs[low] - needs[max(below)]) / (low - max(below))
    step = int((room - needs[low]) / growth) if growth > 0 else low
    return low + step if step > 0 else None


def _smallest(found: Forecast) -> dict[str, int]:
    return {need.policy: need.smallest_bytes for need in found.needs}


def _smallest_of(run: _Run) -> dict[str, int]:
    report = fit(run.trace, policies=list(POLICIES))
    return {need.policy: need.smallest_bytes for need in report.needs}
