"""Foresees what memory a training script needs on a GPU, by running it on the stand-in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gmlake.printable import printable
from gmlake.replaying import replay_trace
from gmlake.snapshots.classes import PLURALS, UNKNOWN_LINE
from gmlake.snapshots.queries import query
from gmlake.snapshots.whole import Snapshot
from gmlake.standin import launcher
from gmlake.standin.batches import Batch, Search, choose, smallest_of
from gmlake.standin.beyond import Beyond, beyond
from gmlake.standin.devices import DEFAULT, Device, device_of
from gmlake.standin.runs import Run, Runner, where_of
from gmlake.tables import Printed, Tables, new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

POLICIES: Final = {
    "caching": "PyTorch's default",
    "expandable": "expandable segments",
    "stitch": "gmlake",
}
"""What is compared, and its name in a sentence."""

MOST_STEPS: Final = 8
MOST_SECONDS: Final = 900

_LONGER: Final = 5.0
"""A run with another batch may take so many times as long as the first,"""

_LEAST_SECONDS: Final = 60.0
"""and this besides: a large batch may be long in the making on a CPU."""

_MOST_GROUPS: Final = 5


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
class Forecast(Printed):
    """The result of gmlake.forecast(); prints as an answer and a table. Sizes in bytes.

    steps, why: how many steps were run, and why no more. peak_live_bytes: the most that is
    allocated at once. beyond: what CUDA and its libraries take. held: the lines that hold most at
    the peak, each with its bytes. kinds: the same by category. notes: what the figures do not
    contain. snapshot: the recording.
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
    kinds: tuple[tuple[str, int], ...] = ()
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

    def _tables(self) -> Tables:
        yield Text(self._needs_in_words(), "bold")
        yield Text(self._fits_in_words(), "green" if self.fits else "red")
        if self.held:
            yield Text(self._held_in_words())
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

    def _held_in_words(self) -> str:
        kinds = ", ".join(
            f"{format_size(size_bytes)} of {PLURALS.get(kind, 'other memory')}"
            for kind, size_bytes in self.kinds
        )
        line, size_bytes = self.held[0]
        return f"at the peak: {kinds}; most is held by {printable(line)}: {format_size(size_bytes)}"

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


def forecast(  # noqa: PLR0913 (each is a choice of its own)
    program: Sequence[str],
    device: str = DEFAULT,
    *,
    steps: int = MOST_STEPS,
    batch: str | None = None,
    ranks: int = 1,
    rank: int = 0,
    timeout: float = MOST_SECONDS,
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
        "none": no batch is searched.
    ranks, rank: what one process of a job of so many needs.
    timeout: seconds that a run may take.
    is_shown: what the script prints is passed on, to standard error.
    progress: called with a few words before each part.

    Raises ForecastError if the script ends before anything is known, StandinMissingError if there
    is no CUDA build of PyTorch, ValueError for a wrong argument.
    """
    chosen = device_of(device)
    if not timeout > 0:
        raise ValueError(f"a timeout of {timeout:g} s: a run needs more than none")
    version = launcher.check_pytorch()
    say = progress or (lambda _: None)
    runner = Runner(list(program), chosen, steps, (rank, ranks), is_shown=is_shown)
    choice = choose(batch, runner.program)
    say(f"running {runner.title}")
    began = time.monotonic()
    first = runner.run(timeout, (choice.name, choice.values[0]) if choice and batch else None)
    longest = min(_LONGER * (time.monotonic() - began) + _LEAST_SECONDS, timeout)
    say("replaying")
    found = _forecast_of(first, runner, chosen, version)
    if choice is None:
        return found
    room = chosen.memory_bytes - found.beyond.total_bytes - found.beyond.error_bytes
    search = Search(runner, choice, room, longest, say)
    largest = search.find(first, {need.policy: need.smallest_bytes for need in found.needs})
    noted = replace(found, notes=(*found.notes, *search.notes))
    if largest is None:
        return noted
    needs = tuple(replace(need, largest_batch=largest[need.policy]) for need in found.needs)
    return replace(noted, needs=needs, batch=search.batch)


def _forecast_of(run: Run, runner: Runner, device: Device, version: str) -> Forecast:
    extra = beyond(run.known["calls"], world=run.known["world"], is_checked=device.is_checked)
    return Forecast(
        program=runner.title,
        device=device,
        torch=version,
        steps=run.known["steps"],
        why=run.known["why"],
        peak_live_bytes=run.trace.peak_live_bytes,
        beyond=extra,
        needs=_needs(run, device, extra),
        held=_largest(run, "line"),
        kinds=_largest(run, "category"),
        notes=tuple(_notes(run)),
        world=run.known["world"],
        rank=run.known["rank"],
        snapshot=run.snapshot,
    )


def _largest(run: Run, by: str) -> tuple[tuple[str, int], ...]:
    """Return the groups that hold most at the peak of the device that has most, and their bytes.

    What no line of Python asked for, as in a backward pass, is named only where that is all.
    """
    answers = query(run.snapshot, "peak", by).answers
    rows = max(
        (answer.rows for answer in answers), key=lambda one: sum(row.size_bytes for row in one)
    )
    known = [row for row in rows if row.key != UNKNOWN_LINE] or rows
    return tuple((row.key, row.size_bytes) for row in known[:_MOST_GROUPS])


def _needs(run: Run, device: Device, extra: Beyond) -> tuple[PolicyNeed, ...]:
    policies = list(POLICIES)
    roomy = {
        one.policy: one.peak_reserved_bytes for one in replay_trace(run.trace, policies).results
    }
    # A model of a small device may spend more than this: on the device of the script it does not.
    least = {
        policy: min(size_bytes, roomy[policy])
        for policy, size_bytes in smallest_of(run, policies).items()
    }
    return tuple(
        PolicyNeed(
            policy,
            roomy[policy],
            least[policy],
            least[policy] + extra.total_bytes,
            least[policy] + extra.total_bytes + extra.error_bytes <= device.memory_bytes,
        )
        for policy in policies
    )


def _notes(run: Run) -> Iterator[str]:
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
    for error in run.known["threads"][:1]:
        yield f"a thread {where_of(error)}; what it would have done is missing"
    if run.processes > 1:
        yield f"{run.processes} processes used the GPU; this is the one that needs most"
