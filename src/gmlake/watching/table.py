"""Readings of counters as a picture: a bar for each device, a row for each lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gmlake.printable import printable
from gmlake.tables import Tables, new_table
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from rich.table import Table

    from gmlake.watching.counters import Counters
    from gmlake.watching.devices import Device
    from gmlake.watching.neighbours import Neighbour

_NARROWEST: Final = 12
_FEW: Final = 10
_UNKNOWN: Final = "-"
_BAR: Final = 36
_LINE: Final = 12
_LEVELS: Final = "▁▂▃▄▅▆▇█"
MINUTE_S: Final = 60.0
"""How far a history goes back."""


@dataclass(frozen=True)
class Interval:
    """The activity of a lake between two readings.

    before: None for all since it began to publish. seconds: the duration. rank, ranks: its number
    in a job of several processes, and how many there are; None if unknown. device: that of its
    memory; None if unknown. history: live bytes in the last minute, each with its age in seconds,
    the oldest first.
    """

    now: Counters
    before: Counters | None
    seconds: float
    command: str = ""
    rank: int | None = None
    ranks: int | None = None
    device: Device | None = None
    history: tuple[tuple[float, int], ...] = ()

    @property
    def states(self) -> dict[str, int]:
        """The number of requests served in each state."""
        before = {} if self.before is None else self.before.states
        return {
            name: max(0, count - before.get(name, 0)) for name, count in self.now.states.items()
        }

    @property
    def states_per_second(self) -> dict[str, float]:
        """The same per second; 0 in an interval without duration."""
        return {
            name: count / self.seconds if self.seconds > 0 else 0.0
            for name, count in self.states.items()
        }

    @property
    def hit_rate(self) -> float | None:
        """The share of the requests that a plan served; None if there was no request."""
        requests = sum(self.states.values())
        return self.states["plan"] / requests if requests else None

    @property
    def waits(self) -> int:
        """How often a stream waited for memory of another."""
        before = 0 if self.before is None else self.before.cross_stream_waits
        return max(0, self.now.cross_stream_waits - before)

    def to_dict(self) -> dict[str, Any]:
        """Return the current counters, and the values derived from the interval."""
        return {
            **self.now.to_dict(),
            "command": self.command,
            "rank": self.rank,
            "ranks": self.ranks,
            "device_index": None if self.device is None else self.device.index,
            "seconds": self.seconds,
            "states_per_second": self.states_per_second,
            "hit_rate": self.hit_rate,
        }


def picture(intervals: list[Interval], sharers: Mapping[int, list[Neighbour]]) -> Tables:
    """Yield a bar for each device, the table of lakes by rank, and the processes' commands.

    sharers: the processes that share each device, by its index.
    """
    yield from _device_lines(intervals)
    for index, found in sorted(sharers.items()):
        yield from map(partial(_sharer_line, index), found)
    ordered = sorted(intervals, key=_place)
    yield counters_table(ordered)
    yield from _rank_line(ordered)
    yield from command_lines(ordered)


def _place(interval: Interval) -> tuple[bool, int, int, int]:
    rank = interval.rank
    return rank is None, rank or 0, interval.now.pid, interval.now.device


def counters_table(intervals: list[Interval]) -> Table:
    """Return a table with a row for each lake; empty columns are left out."""
    has_ranks = any(interval.rank is not None for interval in intervals)
    has_history = any(len(interval.history) > 1 for interval in intervals)
    has_plans = any(interval.now.states["plan"] for interval in intervals)
    has_host = any(interval.now.host_bytes for interval in intervals)
    has_waits = any(interval.now.cross_stream_waits for interval in intervals)
    columns = (
        ("rank", has_ranks, _rank),
        ("process", True, lambda one: str(one.now.pid)),
        ("GPU", True, lambda one: str(one.now.device)),
        ("live", True, lambda one: format_size(one.now.live_bytes)),
        ("last minute", has_history, _sparkline),
        ("reserved", True, lambda one: format_size(one.now.reserved_bytes)),
        ("at most", True, lambda one: format_size(one.now.peak_reserved_bytes)),
        ("on the\nhost", has_host, lambda one: format_size(one.now.host_bytes)),
        ("frag-\nmented", True, lambda one: _percent(one.now.fragmentation)),
        ("plan\nhits", has_plans, lambda one: _percent(one.hit_rate)),
        ("waits", has_waits, lambda one: f"{one.waits:,}"),
    )
    shown = [(name, cell) for name, is_shown, cell in columns if is_shown]
    table = new_table(Text())
    for name, _ in shown:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("served\na second", min_width=_NARROWEST)
    for interval in intervals:
        cells = [cell(interval) for _, cell in shown]
        table.add_row(*map(Text, [*cells, _rates(interval.states_per_second)]))
    return table


def command_lines(intervals: Iterable[Interval]) -> Iterator[Text]:
    """Yield one line for each command line, with the PIDs of its processes."""
    pids: dict[str, dict[int, None]] = {}
    for interval in intervals:
        pids.setdefault(interval.command, {})[interval.now.pid] = None
    for command, numbers in pids.items():
        text = f"{', '.join(map(str, numbers))}  {printable(command)}"
        yield Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _device_lines(intervals: list[Interval]) -> Iterator[Text]:
    """Yield lines for each device: its used memory, and the users."""
    devices = {one.device.index: one.device for one in intervals if one.device is not None}
    for index, device in sorted(devices.items()):
        mine = [one.now for one in intervals if one.device == device]
        live = sum(max(0, counters.live_bytes - counters.host_bytes) for counters in mine)
        reserved = max(live, sum(counters.reserved_bytes for counters in mine))
        used = device.used_bytes
        said = f"{format_size(used)} of {format_size(device.total_bytes)} in use"
        yield Text(f"GPU {index}  {printable(device.name)}: {said}", style="bold")
        if reserved > used:
            yield Text("  gmlake reports more than that: this is not its device", "dim")
            continue
        parts = (
            ("█", "live", live),
            ("▒", "reserved, idle", reserved - live),
            ("░", "all else", used - reserved),
        )
        told = "  ".join(f"{mark} {name} {format_size(size)}" for mark, name, size in parts)
        yield Text(f"  {_bar(parts, device.total_bytes)}")
        yield Text(f"  {told}")
    if intervals and not devices:
        yield Text("other users of the devices are not known: NVML does not tell", "dim")


def _sharer_line(index: int, one: Neighbour) -> Text:
    who = f"process {one.process}" if one.process else "a process of another container"
    if one.passed_over:
        return Text(f"{who} shares GPU {index}, and is passed over: {one.passed_over}", "red")
    held, idle = format_size(one.held_bytes), format_size(one.idle_bytes)
    return Text(f"{who} shares GPU {index}: {held} held, {idle} of it idle")


def _bar(parts: Iterable[tuple[str, str, int]], total: int) -> str:
    """Return "[████▒▒░░    ]", the parts of a device in order."""
    drawn, so_far = "", 0
    for mark, _, size in parts:
        so_far += size
        drawn += mark * (round(_BAR * min(1.0, so_far / max(total, 1))) - len(drawn))
    return f"[{drawn:{_BAR}}]"


def _sparkline(interval: Interval) -> str:
    """Return the last minute of live memory, the newest at the right, against its highest."""
    highest = max((live for _, live in interval.history), default=0)
    columns = [0] * _LINE
    is_known = [False] * _LINE
    for age, live in interval.history:
        column = _LINE - 1 - min(_LINE - 1, int(age / MINUTE_S * _LINE))
        columns[column] = max(columns[column], live)
        is_known[column] = True
    top = len(_LEVELS) - 1
    return "".join(
        _LEVELS[round(top * live / highest)] if is_there and highest else " "
        for live, is_there in zip(columns, is_known, strict=True)
    )


def _rank(interval: Interval) -> str:
    if interval.rank is None:
        return _UNKNOWN
    return f"{interval.rank}" if interval.ranks is None else f"{interval.rank} of {interval.ranks}"


def _rank_line(intervals: list[Interval]) -> Iterator[Text]:
    """Yield which of several ranks holds the most, and how far the others are from that."""
    held: dict[int, int] = {}
    for one in intervals:
        if one.rank is not None:
            held[one.rank] = held.get(one.rank, 0) + one.now.reserved_bytes
    if len(held) > 1:
        most, least = max(held, key=lambda rank: held[rank]), min(held.values())
        yield Text(
            f"rank {most} holds most: {format_size(held[most])}, "
            f"{format_size(held[most] - least)} more than the least"
        )


def _percent(part: float | None) -> str:
    return _UNKNOWN if part is None else format_share(part)


def _rates(rates: dict[str, float]) -> str:
    """Return the states that occurred, as "exact 1,204, split 3.5"."""
    texts = [
        f"{name}\u00a0{rate:,.0f}" if rate >= _FEW else f"{name}\u00a0{rate:.1f}"
        for name, rate in rates.items()
        if rate > 0
    ]
    return ", ".join(texts) or "nothing"
