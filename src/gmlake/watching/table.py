"""Readings of counters as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gmlake.printable import printable
from gmlake.tables import new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from gmlake.watching.counters import Counters

_NARROWEST: Final = 12
_FEW: Final = 10
_UNKNOWN: Final = "-"


@dataclass(frozen=True)
class Interval:
    """What a lake did between two readings.

    before: None for all since it began to publish. seconds: how long it was.
    """

    now: Counters
    before: Counters | None
    seconds: float
    command: str = ""

    @property
    def states(self) -> dict[str, int]:
        """How often requests were served how."""
        before = {} if self.before is None else self.before.states
        return {
            name: max(0, count - before.get(name, 0)) for name, count in self.now.states.items()
        }

    @property
    def states_per_second(self) -> dict[str, float]:
        """The same, a second; 0 in an interval without duration."""
        return {
            name: count / self.seconds if self.seconds > 0 else 0.0
            for name, count in self.states.items()
        }

    @property
    def hit_rate(self) -> float | None:
        """The part of the requests that a plan served; None where there was none."""
        requests = sum(self.states.values())
        return self.states["plan"] / requests if requests else None

    @property
    def waits(self) -> int:
        """How often one stream waited for memory of another."""
        before = 0 if self.before is None else self.before.cross_stream_waits
        return max(0, self.now.cross_stream_waits - before)

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as they are, and what follows from the interval."""
        return {
            **self.now.to_dict(),
            "command": self.command,
            "seconds": self.seconds,
            "states_per_second": self.states_per_second,
            "hit_rate": self.hit_rate,
        }


def counters_table(intervals: Iterable[Interval]) -> Table:
    """Return a table with a row for each lake."""
    table = new_table(Text())
    table.add_column("process", no_wrap=True)
    for name in ("GPU", "live", "reserved", "at most", "frag-\nmented", "plan\nhits", "waits"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("served\na second", min_width=_NARROWEST)
    for interval in intervals:
        table.add_row(*_row(interval))
    return table


def command_lines(intervals: Iterable[Interval]) -> Iterator[Text]:
    """Yield one line for each process: its number and what it was started as."""
    commands = {interval.now.pid: interval.command for interval in intervals}
    for pid, command in commands.items():
        text = f"{pid}  {printable(command)}"
        yield Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _row(interval: Interval) -> list[Text]:
    now = interval.now
    cells = [
        str(now.pid),
        str(now.device),
        format_size(now.live_bytes),
        format_size(now.reserved_bytes),
        format_size(now.peak_reserved_bytes),
        _percent(now.fragmentation),
        _percent(interval.hit_rate),
        f"{interval.waits:,}",
        _rates(interval.states_per_second),
    ]
    return [Text(cell) for cell in cells]


def _percent(part: float | None) -> str:
    return _UNKNOWN if part is None else f"{100 * part:.1f} %"


def _rates(rates: dict[str, float]) -> str:
    """Return the states that occurred, as "exact 1,204, split 3.5"."""
    texts = [
        f"{name}\u00a0{rate:,.0f}" if rate >= _FEW else f"{name}\u00a0{rate:.1f}"
        for name, rate in rates.items()
        if rate > 0
    ]
    return ", ".join(texts) or "nothing"
