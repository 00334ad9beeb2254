"""Foresees what memory a training script needs on a GPU, by running it on the stand-in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
from gmlake.standin.runs import ForecastError, Run, Runner, where_of
from gmlake.standin.sureness import open_questions, share_that_fits
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
_LEAST_SERVED: Final = 1 << 20  # where CUDA alone takes more than the device has


@dataclass(frozen=True)
class PolicyNeed:
    """What one allocator needs for the script. Sizes in bytes.

    reserved_bytes: at most, where memory is plentiful. smallest_bytes: the least that PyTorch must
    have; with it no request is refused. needed_bytes: of the whole device, CUDA's own included.
    least_bytes, most_bytes: the same where unknown values are assumed otherwise. fits: whether the
    device has that, with the error of the figure; None if that depends on what is not known. share:
    of the programs that were measured, how many would fit with such a figure. largest_batch: None
    if the script's batch is not known.
    """

    policy: str
    reserved_bytes: int
    smallest_bytes: int
    needed_bytes: int
    fits: bool | None
    least_bytes: int = 0
    most_bytes: int = 0
    share: float | None = None
    largest_batch: int | None = None


@dataclass(frozen=True)
class Forecast(Printed):
    """The result of gmlake.forecast(); prints as an answer and a table. Sizes in bytes.

    steps, why: how many steps were run, and why no more. peak_live_bytes: the most that is
    allocated at once. beyond: what CUDA and its libraries take. held: the lines that hold most at
    the peak, each with its bytes. kinds: the same by category. notes: what the figures do not
    contain. unknown: what the memory depends on that is not known. least_live_bytes,
    most_live_bytes: the peak where that is assumed otherwise. snapshot: the recording.
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
    unknown: tuple[str, ...] = ()
    least_live_bytes: int = 0
    most_live_bytes: int = 0
    batch: Batch | None = None
    world: int = 1
    rank: int = 0
    snapshot: Snapshot = field(default_factory=Snapshot, repr=False, compare=False)

    @property
    def fits(self) -> bool | None:
        """Whether the device has enough memory with one of the allocators; None: not known."""
        found = {need.fits for need in self.needs}
        return True if True in found else None if None in found else False

    def to_dict(self) -> dict[str, Any]:
        """Return every figure, as `gmlake forecast --json` prints it."""
        found = asdict(replace(self, snapshot=Snapshot()))
        del found["snapshot"]
        return {"schema": "gmlake-forecast-1", **found, "fits": self.fits}

    def _tables(self) -> Tables:
        yield Text(self._needs_in_words(), "bold")
        color = {True: "green", None: "yellow", False: "red"}[self.fits]
        yield Text(self._fits_in_words(), color)
        if self.held:
            yield Text(self._held_in_words())
        yield self._table()
        yield Text(self._basis(), "dim")
        for note in (*self.unknown, *self.notes):
            yield Text(printable(note))

    def _needs_in_words(self) -> str:
        said = [
            f"{_between(need.needed_bytes, need.least_bytes, need.most_bytes)} with "
            f"{POLICIES[need.policy]}"
            for need in self.needs
        ]
        peak = _between(self.peak_live_bytes, self.least_live_bytes, self.most_live_bytes)
        return f"peak {peak} live; needs {', '.join(said)}"

    def _fits_in_words(self) -> str:
        within = f"{self.device.label} ({format_size(self.device.memory_bytes)})"
        yes = [POLICIES[need.policy] for need in self.needs if need.fits]
        if self.fits is None:
            said = f"not known whether it fits {within}"
        elif len(yes) == len(self.needs):
            said = f"fits {within} with all of them"
        elif yes:
            said = f"fits {within} with {' and '.join(yes)} only"
        else:
            over = min(need.needed_bytes for need in self.needs) - self.device.memory_bytes
            said = f"does not fit {within}"
            if over > 0:
                said += f": {format_size(over)} too large"
        if yes:
            share = max(need.share or 0.0 for need in self.needs)
            said += f" ({share:.0%} sure)"
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
        figures = ("reserved where\nthere is room", "PyTorch\nneeds", "on the\ndevice")
        table = new_table(None, "allocator", *figures)
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
        is_cut = self.why.startswith("steps")
        rest = "; what comes after was not run: --to-end runs it" if is_cut else ""
        return (
            f"foreseen from {ran} ({self.why}{rank}{rest}) on a stand-in for the GPU, with PyTorch "
            f"{self.torch}; {format_size(self.beyond.total_bytes)} are CUDA's own, give or take "
            f"{format_size(self.beyond.error_bytes)}"
        )


def _between(size_bytes: int, least_bytes: int, most_bytes: int) -> str:
    """Return a size, or a range of which it is a part."""
    if least_bytes == most_bytes:
        return format_size(size_bytes)
    return f"{format_size(least_bytes)} to {format_size(most_bytes)}"


def forecast(  # noqa: PLR0913 (each is a choice of its own)
    program: Sequence[str],
    device: str = DEFAULT,
    *,
    steps: int = MOST_STEPS,
    to_end: bool = False,
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
    to_end: the run goes on to the end of the script, whether its steps repeat or not.
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
    if steps < 1:
        raise ValueError(f"{steps} steps: at least one is needed")
    say = progress or (lambda _: None)
    most = 0 if to_end else steps
    runner = Runner(list(program), chosen, most, ranks, rank, is_shown)
    choice = choose(batch, runner.program)
    version = launcher.check_pytorch()
    say(f"running {runner.title}")
    began = time.monotonic()
    given = (choice.name, choice.given) if choice and batch else None
    first = _first(runner, timeout, given)
    longest = min(_LONGER * (time.monotonic() - began) + _LEAST_SECONDS, timeout)
    others = []
    if any(each["is_open"] and each["what"] != "number" for each in first.known["answers"]):
        say("running it with other values")
        others = list(_otherwise(runner, longest, given))
    say("replaying")
    found = _forecast_of(first, others, runner, version)
    if choice is None or found.why == "time was up":
        return found
    room = chosen.memory_bytes - found.beyond.total_bytes - found.beyond.error_bytes
    search = Search(runner, choice, room, longest, say)
    largest = search.find(first, {need.policy: need.smallest_bytes for need in found.needs})
    noted = replace(found, notes=(*found.notes, *search.notes))
    if largest is None:
        return noted
    needs = tuple(replace(need, largest_batch=largest[need.policy]) for need in found.needs)
    return replace(noted, needs=needs, batch=search.batch)


def _first(runner: Runner, timeout: float, batch: tuple[str, int] | None) -> Run:
    """Run the script with the memory of the device; if that ends it, with as much as it wants.

    One that catches OutOfMemoryError goes on as it would on the device.
    """
    cudas = beyond({}, world=1, is_checked=True).total_bytes
    try:
        left = max(runner.device.memory_bytes - cudas, _LEAST_SERVED)
        return runner.run(timeout, batch, served_bytes=left)
    except ForecastError as error:
        if not error.was_refused:
            raise
    return runner.run(timeout, batch)


def _otherwise(runner: Runner, longest: float, batch: tuple[str, int] | None) -> Iterator[Run]:
    """Run the script where what is not known is otherwise, as far as that ends well."""
    for assume in ("most", "least"):
        with suppress(ForecastError):
            yield runner.run(longest, batch, assume=assume)


def _forecast_of(run: Run, others: Sequence[Run], runner: Runner, version: str) -> Forecast:
    device = runner.device
    extra = beyond(run.known["calls"], world=run.known["world"], is_checked=device.is_checked)
    needs = _needs(run, others, device, extra)
    room = device.memory_bytes / min(need.needed_bytes for need in needs)
    unknown = tuple(open_questions(run.known, room))
    if unknown:
        most = device.memory_bytes
        needs = tuple(replace(one, fits=None) if one.least_bytes <= most else one for one in needs)
    live = [one.trace.peak_live_bytes for one in (run, *others)]
    return Forecast(
        program=runner.title,
        device=device,
        torch=version,
        steps=run.known["steps"],
        why=run.known["why"],
        peak_live_bytes=run.trace.peak_live_bytes,
        beyond=extra,
        needs=needs,
        held=_largest(run, "line"),
        kinds=_largest(run, "category"),
        notes=tuple(_notes(run)),
        unknown=unknown,
        least_live_bytes=min(live),
        most_live_bytes=max(live),
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


def _needs(
    run: Run, others: Sequence[Run], device: Device, extra: Beyond
) -> tuple[PolicyNeed, ...]:
    policies = list(POLICIES)
    roomy = {
        one.policy: one.peak_reserved_bytes for one in replay_trace(run.trace, policies).results
    }
    # A model of a small device may spend more than this: on the device of the script it does not.
    least = {
        policy: min(size_bytes, roomy[policy])
        for policy, size_bytes in smallest_of(run, policies).items()
    }
    made = []
    ranges = [least, *(smallest_of(other, policies) for other in others)]
    for policy in policies:
        needed, *sizes = [needs[policy] + extra.total_bytes for needs in (least, *ranges)]
        fits = _refused(run) > 0 or needed + extra.error_bytes <= device.memory_bytes
        made.append(
            PolicyNeed(
                *(policy, roomy[policy], least[policy], needed, fits, min(sizes), max(sizes)),
                share=share_that_fits(policy, needed, device.memory_bytes),
            )
        )
    return tuple(made)


def _refused(run: Run) -> int:
    return sum(each["refused"] for each in run.known["devices"])


def _notes(run: Run) -> Iterator[str]:
    if run.known["why"] == "the program ended" and not run.known["steps"]:
        yield "no optimizer made a step; all of the program was run"
    for asked in run.known["answers"]:
        if asked["what"] == "truth" and not asked["is_open"]:
            yield (
                f"{asked['file']}:{asked['line']} asks {asked['count']:,} times for a truth value "
                f"that is not known; each time it is taken as {asked['answers'][0]}"
            )
    if refused := _refused(run):
        yield f"the script was refused memory {refused:,} times and went on, as on this device"
    for error in run.known["threads"][:1]:
        yield f"a thread {where_of(error)}; what it would have done is missing"
    if run.processes > 1:
        yield f"{run.processes} processes used the GPU; this is the one that needs most"
