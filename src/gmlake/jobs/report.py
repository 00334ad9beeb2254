"""The report about the ranks of a job: in words and tables, as JSON, and as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gmlake.errors import TraceError
from gmlake.jobs.findings import (
    ABOVE,
    GROWS,
    Difference,
    Lines,
    Spread,
    Straggler,
    spreads,
    stragglers,
)
from gmlake.jobs.page import page_of
from gmlake.jobs.summary import Refusal, Summary
from gmlake.pictures.drawable import Drawable
from gmlake.pictures.figures import Report
from gmlake.tables import Printed, Tables, new_table
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gmlake.jobs.folder import Folder, Job, Member

JOB_SCHEMA: Final = "gmlake.job/1"
_FEW: Final = 6
_SHORT: Final = 70
"""Characters of an error: what follows differs from rank to rank."""


@dataclass(frozen=True, eq=False)
class JobReport(Drawable, Printed):
    """What the ranks of one job say together. number: of the job in its folder, from 1.

    top: how many rows of a table are shown.
    """

    folder: Folder
    number: int
    top: int = 10

    @cached_property
    def job(self) -> Job:
        """The job that it is about."""
        return self.folder.jobs[self.number - 1]

    @cached_property
    def members(self) -> list[Member]:
        """The devices of its ranks."""
        return self.job.members

    @cached_property
    def lines(self) -> Lines:
        """The lines of its ranks."""
        return Lines(self.job)

    @cached_property
    def spreads(self) -> list[Spread]:
        """Each figure over all ranks; empty if none held memory."""
        return spreads(self.members) if self.members else []

    @cached_property
    def differences(self) -> list[Difference]:
        """The lines that hold different amounts."""
        return self.lines.differences(self.members)

    @cached_property
    def stragglers(self) -> list[Straggler]:
        """The ranks that grow, or stay above the others."""
        return stragglers(self.members)

    @cached_property
    def refusals(self) -> list[tuple[Summary, Refusal]]:
        """Each refusal with its rank, the first of each rank before all second ones."""
        depth = max((len(rank.refusals) for rank in self.job.ranks), default=0)
        return [
            (rank, rank.refusals[place])
            for place in range(depth)
            for rank in self.job.ranks
            if place < len(rank.refusals)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what `gmlake report --json` prints."""
        job = self.job
        return {
            "schema": JOB_SCHEMA,
            "folder": self.folder.path,
            "job": {"number": self.number, "of": len(self.folder.jobs), "name": job.name}
            | {"started": job.started, "restart": job.ranks[0].restart, "ranks": job.world},
            "missing": job.missing,
            "unreadable": list(self.folder.unreadable),
            "cut_off": [{"rank": one.rank, "steps": one.steps} for one in job.cut_off],
            "raised": [{"rank": one.rank, "error": one.error} for one in job.raised],
            "refusals": [
                {"rank": rank.rank, "line": self.lines.name(one.frame), **asdict(one)}
                for rank, one in self.refusals
            ],
            "spread": [asdict(one) for one in self.spreads],
            "differences": [asdict(one) for one in self.differences[: self.top]],
            "stragglers": [asdict(one) for one in self.stragglers],
            "ranks": [
                {"rank": one.rank.rank, "host": one.rank.host, "device": one.device.index}
                | {"steps": one.rank.steps, "state": one.rank.state, "refused": one.device.refused}
                | {"live_bytes": one.device.live_bytes, "used_bytes": one.device.used_bytes}
                | {"reserved_bytes": one.device.reserved_bytes, "retries": one.device.retries}
                for one in self.members
            ],
        }

    def report(self) -> Report:
        """Return the page."""
        tables = [("refused", self._refusals()), ("what differs", self._differences())]
        facts = [("job", self.title()), *self._warnings(), *self._comparisons()]
        return page_of(self.members, facts, tables, self.stragglers)

    # ---- in words -------------------------------------------------------------------------------

    def title(self) -> str:
        """Name the job."""
        job, first = self.job, self.job.ranks[0]
        began = datetime.fromtimestamp(job.started, timezone.utc)
        restart = f", restart {first.restart}" if first.restart else ""
        which = f"{job.name}{restart}, begun {began:%Y-%m-%d %H:%M:%S} UTC"
        counted = f"{len(job.ranks):,} of {job.world:,} ranks"
        return f"{which}: {counted}, {first.policy}, PyTorch {first.torch}"

    def _warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what keeps the report from being about a whole job, with the kind of each."""
        job, folder = self.job, self.folder
        others = len(folder.jobs) - 1
        if others:
            which = f"this is number {self.number}; --job chooses another"
            yield "other jobs", f"{others:,} more in this folder, the oldest is number 1; {which}"
        for number, other in enumerate(folder.jobs, 1):
            if other is not job and other.is_beside(job):
                who = f"{_names(other.ranks)} of {other.world:,}, at the same time: "
                who += ", ".join(_first(other.files))
                yield "contradicts", f"{who}; --job {number} reports it, or remove it"
        if job.missing:
            yield "missing", f"no file of {in_ranges(job.missing)}"
        for line in _first(folder.unreadable):
            yield "not readable", line
        if job.cut_off:
            yield "cut off", f"{_cut_off(job.cut_off)}; or they are running still"
        by_error = defaultdict(list)
        for one in job.raised:
            by_error[one.error[:_SHORT]].append(one)
        for text, ranks in list(by_error.items())[:_FEW]:
            yield "ended by", f"{text} ({_names(ranks)})"

    def _comparisons(self) -> Iterator[tuple[str, str]]:
        """Yield what the ranks say together."""
        job = self.job
        yield from self._worst()
        for name, different in (
            ("settings", {one.settings for one in job.ranks}),
            ("allocators", {one.policy for one in job.ranks}),
            ("devices", {f"{one.device.name}" for one in self.members}),
        ):
            if len(different) > 1:
                yield f"{name} differ", "; ".join(_first(sorted(different)))
        for kind in (GROWS, ABOVE):
            found = [one for one in self.stragglers if one.kind == kind]
            for straggler in found[:_FEW]:
                yield kind, straggler_in_words(straggler)
            if len(found) > _FEW:
                yield kind, f"{len(found) - _FEW:,} more, which --json names"

    def _worst(self) -> Iterator[tuple[str, str]]:
        if not self.members:
            yield "nothing held", "no rank held memory of a device"
            return
        by_name = {one.name: one for one in self.spreads}
        for name, said in (("reserved", "most reserved"), ("live", "most live")):
            one = by_name[name]
            yield said, f"{one.most_of}, {format_size(int(one.most))}"
        share = by_name["live / reserved"]
        said = f"{format_share(share.least)} of what it reserved was live at its peak"
        yield "most fragmented", f"{share.least_of}, {said}"

    def _tables(self) -> Tables:
        yield Text(self.title(), "bold")
        for sentences, style in ((self._warnings(), "red"), (self._comparisons(), "")):
            for name, said in sentences:
                yield Text(f"{name}: {said}", style)
        for title, rows in (
            ("refused", self._refusals()),
            ("over all ranks", self._spread()),
            ("what differs, by line, each rank at its own peak", self._differences()),
        ):
            if len(rows) > 1:
                yield _table(title, rows, self.top)

    def _refusals(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            ("rank", "step", "asked for", "at", "live", "reserved", "why")
        ]
        for rank, one in self.refusals:
            sizes = map(format_size, (one.live_bytes, one.reserved_bytes))
            which = (rank.who.removeprefix("rank "), f"{one.step:,}")
            where = self.lines.name(one.frame)
            rows.append((*which, format_size(one.size_bytes), where, *sizes, one.why))
        return rows

    def _spread(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("peak", "least", "of", "middle", "most", "of")]
        for one in self.spreads:
            write = format_share if one.most <= 1 and "/" in one.name else _size
            ends = (write(one.least), one.least_of), (write(one.most), one.most_of)
            rows.append((one.name, *ends[0], write(one.middle), *ends[1]))
        return rows

    def _differences(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("line", "holds", "on", "elsewhere")]
        for one in self.differences:
            elsewhere = format_size(one.middle_bytes)
            if one.least_bytes != one.most_bytes:
                ends = f"{format_size(one.least_bytes)} to {format_size(one.most_bytes)}"
                elsewhere += f" ({ends})"
            names = ", ".join(_first(one.odd))
            rows.append((one.line, format_size(one.odd_bytes), names, elsewhere))
        return rows


def straggler_in_words(one: Straggler) -> str:
    """Say how a rank grows, or by how much it is above the others."""
    before, after = format_size(one.before_bytes), format_size(one.after_bytes)
    if one.kind == GROWS:
        return f"{one.name}, live at the peak of a step: {before} in step {one.step:,}, {after} now"
    return f"{one.name}, from step {one.step:,} on: {after} live, {before} in the middle of all"


def report_of(folder: Folder, number: int = 0, top: int = 10) -> JobReport:
    """Return the report of a job by its number from 1; 0: the last one. Raises TraceError."""
    if not 0 <= number <= len(folder.jobs):
        raise TraceError(
            f"there is no job {number}; there are {len(folder.jobs)}", path=folder.path
        )
    return JobReport(folder, number or len(folder.jobs), top)


def _cut_off(ranks: Sequence[Summary]) -> str:
    """Say which ranks wrote last after which step."""
    by_steps = defaultdict(list)
    for one in ranks:
        by_steps[one.steps].append(one)
    if len(by_steps) > _FEW:
        return f"{_names(ranks)}, after steps {min(by_steps):,} to {max(by_steps):,} or later"
    return "; ".join(
        f"{_names(by_steps[steps])}, after step {steps:,} or later" for steps in sorted(by_steps)
    )


def _names(ranks: Sequence[Summary]) -> str:
    if any(one.rank < 0 for one in ranks):
        return ", ".join(_first([one.who for one in ranks]))
    return in_ranges(one.rank for one in ranks)


def in_ranges(ranks: Iterable[int]) -> str:
    """Write numbers as "rank 3" or "ranks 0-2, 7"."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in parts]
    is_one = len(parts) == 1 and parts[0][0] == parts[0][1]
    return f"rank{'' if is_one else 's'} {', '.join(_first(texts))}"


def _first(items: Sequence[Any]) -> list[Any]:
    """Return the first few, and how many more there are."""
    more = len(items) - _FEW
    return [*items[:_FEW], *([f"and {more:,} more"] if more > 0 else [])]


def _size(value: float) -> str:
    return format_size(int(value))


def _table(title: str, rows: list[tuple[str, ...]], top: int) -> RenderableType:
    table = new_table(Text(title))
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows[1 : top + 1]:
        table.add_row(*map(Text, row))
    if len(rows) - 1 > top:
        table.add_row(f"{len(rows) - 1 - top:,} more", style="dim")
    return table
