"""Finds the largest batch of a script that fits: two are recorded, others foreseen and then run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gmlake.fitting import GRANULE_BYTES, Need, fit
from gmlake.snapshots.whole import of_one_trace
from gmlake.standin.runs import ForecastError, Run, Runner, option_of

_OPTIONS: Final = (
    *("--batch", "--batch-size", "--batch_size", "--micro-batch-size", "--micro_batch_size"),
    *("--per_device_train_batch_size", "--per-device-train-batch-size", "-b"),
)
"""Options of scripts that say their batch, as most are called."""

NO_SEARCH: Final = "none"

_MOST_RUNS: Final = 5
"""To find the largest batch of one policy, beside the two that are recorded."""


@dataclass(frozen=True)
class Batch:
    """Where the script takes its batch from, and what was run with.

    name: an option of the script, or an environment variable. given: of the forecast itself.
    recorded: the two from which the others were foreseen. confirmed: those that were run, too.
    """

    name: str
    given: int
    recorded: tuple[int, int]
    confirmed: tuple[int, ...] = ()


def choose(given: str | None, program: Sequence[str]) -> Batch | None:
    """Return what sets the batch, and what to record; None if not known, or not wanted.

    given: as forecast() takes it. Raises ValueError.
    """
    if given == NO_SEARCH:
        return None
    if given is None:
        for name in _OPTIONS:
            value = option_of(program, name)
            if value is not None and value.isdigit() and int(value):
                return Batch(name, int(value), (int(value), 2 * int(value)))
        return None
    name, _, text = given.partition("=")
    numbers = text.split(",")
    if not name or not all(each.isdigit() and int(each) for each in numbers) or len(numbers) > 2:  # noqa: PLR2004
        raise ValueError(f"{given!r} is not NAME=A or NAME=A,B, as --batch-size=8,16 or BATCH=8")
    if not name.startswith("-") and option_of(program, f"--{name}") is not None:
        name = f"--{name}"
    first = int(numbers[0])
    second = int(numbers[1]) if len(numbers) > 1 else 2 * first
    if first == second:
        raise ValueError(f"{given!r}: two different batches are needed")
    return Batch(name, first, (first, second))


@dataclass
class Search:
    """The largest batch of a script, for each policy.

    room_bytes: what PyTorch may have. longest_seconds: of one run. say: tells of each.
    """

    runner: Runner
    choice: Batch
    room_bytes: int
    longest_seconds: float
    say: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    _runs: dict[int, dict[str, int]] = field(default_factory=dict)
    """By batch: bytes that each policy needs."""

    @property
    def batch(self) -> Batch:
        """What was run."""
        confirmed = set(self._runs) - set(self.choice.recorded)
        return replace(self.choice, confirmed=tuple(sorted(confirmed)))

    def find(self, first: Run, needs: Mapping[str, int]) -> dict[str, int] | None:
        """Foresee the largest batch for each policy, and run it; None if there is nothing to go by.

        first: the run with the first batch. needs: bytes that each policy needs for it.
        """
        name, values = self.choice.name, self.choice.recorded
        try:
            second = self._run(values[1])
        except ForecastError as error:
            self.notes.append(
                f"the largest {name} is not known: with {values[1]:,}, {error.reason}"
            )
            return None
        self.say("extrapolating")
        room = max(self.room_bytes, GRANULE_BYTES)
        both = [of_one_trace(run.trace) for run in (first, second)]
        report = fit(both, room, values, list(needs))
        self._runs[values[0]] = dict(needs)
        self._runs[values[1]] = _smallest(report.needs[len(needs) :])
        if report.why_line:
            self.notes.append(f"other batches are extrapolated roughly: {report.why_line}")
        return {one.policy: self._confirmed(one.policy, one.batch) for one in report.largest}

    def _run(self, batch: int) -> Run:
        """Run the script with a batch. Raises ForecastError."""
        self.say(f"running {self.runner.title} with {self.choice.name} {batch:,}")
        return self.runner.run(self.longest_seconds, (self.choice.name, batch))

    def _confirmed(self, policy: str, foreseen: int) -> int:
        """Return the largest batch that was run and fits, or the one foreseen where none ran."""
        name = self.choice.name
        batch: int | None = foreseen or min(self._runs)
        runs = missed = 0
        while batch is not None:
            if batch not in self._runs:
                if runs == _MOST_RUNS:
                    low = self._largest(policy)
                    self._note(f"a {name} above {low:,} may fit, too: the search ended there")
                    return low
                runs += 1
                try:
                    self._runs[batch] = smallest_of(
                        self._run(batch), [*self._runs[min(self._runs)]]
                    )
                except ForecastError as error:
                    self._note(f"the largest {name} is foreseen, not run: {error.reason}")
                    return batch
            missed = missed + 1 if self._runs[batch][policy] > self.room_bytes else 0
            batch = next_batch(self._needs(policy), self.room_bytes, missed)
        largest = self._largest(policy)
        if largest == max(self._runs):
            self._note(f"a {name} above {largest:,} needs no more: its data end there")
        return largest

    def _needs(self, policy: str) -> dict[int, int]:
        return {batch: needs[policy] for batch, needs in self._runs.items()}

    def _largest(self, policy: str) -> int:
        """Return the largest that was run and fits; 0 if none does."""
        fitting = (batch for batch, need in self._needs(policy).items() if need <= self.room_bytes)
        return max(fitting, default=0)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def next_batch(needs: Mapping[int, int], room: int, missed: int = 0) -> int | None:
    """Return the batch to run next; None if the largest that fits is among those that were.

    needs: bytes by batch, of two batches or more. missed: how many runs in a row did not fit. A
    line through the nearest two tells where the room ends. Where none was too large and the line
    says that one more is, that is believed. Between one that fits and one that does not, this is
    the Illinois variant of the false position: each miss goes about twice as far as the one before.
    """
    low = max((batch for batch, need in needs.items() if need <= room), default=0)
    high = min((batch for batch in needs if batch > low), default=0)
    if high == low + 1:
        return None
    if low and high:
        left, over = (room - needs[low]) / 2 ** max(missed - 1, 0), needs[high] - room
        return min(max(low + int((high - low) * left / (left + over)), low + 1), high - 1)
    batches = sorted(needs)
    one, other = batches[-2:] if low else batches[:2]
    growth = (needs[other] - needs[one]) / (other - one)
    foreseen = one + int((room - needs[one]) // growth) if growth > 0 else 2 * low
    if high:
        return min(max(foreseen, 1), high - 1)
    if growth <= 0 and len(batches) > 2:  # noqa: PLR2004 (the two that were recorded)
        return None
    foreseen = min(foreseen, 16 * low)  # a line that is nearly flat says little
    return foreseen if foreseen > low else None


def smallest_of(run: Run, policies: Sequence[str]) -> dict[str, int]:
    """Return the bytes that each policy needs to serve a run."""
    return _smallest(fit(of_one_trace(run.trace), policies=policies).needs)


def _smallest(needs: Sequence[Need]) -> dict[str, int]:
    return {need.policy: need.smallest_bytes for need in needs}
