"""The page of a job: its ranks as bars and over steps, and the tables of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from gmlake.jobs.findings import Straggler, aligned, middle_of
from gmlake.pictures import look
from gmlake.pictures.drawing import Drawing, Key, Plot, spread, use_run
from gmlake.pictures.figures import OwnFigure, Report
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.jobs.folder import Member

_NAMED: Final = 6
"""Ranks that have a line of their own in the picture."""
_HEADROOM: Final = 1.1
_HEIGHT: Final = 320


@dataclass(frozen=True)
class Ranks(OwnFigure):
    """A row for each rank: its peak of reserved memory as a bar, the live part marked."""

    members: tuple[Member, ...]

    template: ClassVar[str] = "jobs/ranks.html"

    @property
    def widest(self) -> int:
        """The most bytes that a rank has reserved."""
        return max((one.device.reserved_bytes for one in self.members), default=1) or 1


@dataclass(frozen=True)
class Rows(OwnFigure):
    """A table of texts. rows: the first one is the head."""

    rows: tuple[tuple[str, ...], ...]

    template: ClassVar[str] = "jobs/rows.html"


@dataclass(frozen=True)
class OverSteps(OwnFigure):
    """Peaks of live memory, step by step: the range of all ranks, their middle, and some ranks.

    each: steps that a point stands for. named: by the name of a rank.
    """

    each: int
    least: NDArray[np.int64]
    middle: NDArray[np.int64]
    most: NDArray[np.int64]
    named: tuple[tuple[str, NDArray[np.int64]], ...]

    def draw(self) -> Drawing:
        """Return the picture."""
        at = np.arange(len(self.most)) * self.each
        top = float(self.most.max(initial=1)) * _HEADROOM
        plot = Plot(spread(0, float(at[-1])), (0.0, top), height=_HEIGHT)
        plot.y["kind"] = "bytes"
        use_run(plot, "steps")
        source = plot.source({"x": at, "low": self.least, "top": self.most})
        plot.add("band", source, "range", colour=look.FREE, alpha=0.4)
        keys = [Key("all ranks", look.FREE, "range")]
        lines = [("the middle", look.RESERVED, self.middle)]
        lines += [
            (name, look.PALETTE[place % len(look.PALETTE)], row)
            for place, (name, row) in enumerate(self.named)
        ]
        for name, colour, row in lines:
            source = plot.source({"x": at[: len(row)], "y": row})
            hover = [("step", "x", "count"), (name, "y", "bytes")]
            plot.add("line", source, name, colour=colour, width=2, hover=hover)
            keys.append(Key(name, colour, name, "line"))
        says = f"The middle of all ranks is at most {format_size(int(self.middle.max()))}; "
        says += f"the highest is {format_size(int(self.most.max()))}."
        return Drawing(plot, tuple(keys), says)


def page_of(
    members: Sequence[Member],
    facts: Sequence[tuple[str, str]],
    tables: Sequence[tuple[str, list[tuple[str, ...]]]],
    stragglers: Sequence[Straggler],
) -> Report:
    """Return the figures of a job. tables: a title and rows each, the first one is the head."""
    figures: list[OwnFigure] = [Rows(title, tuple(rows)) for title, rows in tables if len(rows) > 1]
    over = _over_steps(members, [one.name for one in stragglers])
    figures += [over] if over else []
    if members:
        figures.append(Ranks("peak of each rank", tuple(members)))
    return Report("the ranks of a job", tuple(facts), tuple(figures))


def _over_steps(members: Sequence[Member], chosen: Sequence[str]) -> OverSteps | None:
    """Return the picture: ranks that grow or are above the others by name, then the fullest."""
    each, rows = aligned(one.device.curve for one in members)
    longest = max(map(len, rows), default=0)
    if not longest:
        return None
    by_name = {one.name: row for one, row in zip(members, rows, strict=True) if len(row)}
    fullest = sorted(by_name, key=lambda name: -int(by_name[name].max()))
    named = list(dict.fromkeys([*chosen, *fullest]))[:_NAMED]
    least, most = np.full((2, longest), -1, np.int64)
    for row in by_name.values():
        part = slice(0, len(row))
        most[part] = np.maximum(most[part], row)
        least[part] = np.where(least[part] < 0, row, np.minimum(least[part], row))
    return OverSteps(
        title="live memory over steps",
        note="Each point is the highest live memory of a step, or of several where there are many.",
        each=each,
        least=least,
        middle=middle_of(rows),
        most=most,
        named=tuple((name, by_name[name]) for name in named),
    )
