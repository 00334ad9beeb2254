"""What one rank leaves of itself: a small file of JSON, and how it is read.

Every list in it is bounded, so that the file stays below 50 KiB however long the program ran.
Sizes are in bytes. What is read here can be added up, drawn and written by whoever uses it: a file
that says what no rank could is refused whole.
"""

from __future__ import annotations

import json
import reprlib
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from gmlake.printable import printable

SCHEMA: Final = "gmlake.rank/1"

RUNNING: Final = "running"
ENDED: Final = "ended"
RAISED: Final = "raised"

MOST_LINES: Final = 40
"""Lines of the program that a device's peak is divided among; the rest is summed."""

MOST_REFUSALS: Final = 8
"""Refusals that are described; all are counted."""

MOST_POINTS: Final = 256
"""Points of a curve."""

MOST_TEXT: Final = 300
"""Characters of a text."""

MOST_BYTES: Final = 1 << 20
"""A larger file is none of these."""

MOST_RANKS: Final = 1 << 16
"""Ranks of a job, and files of a folder that are looked at."""

_LONGEST: Final = 1 << 12
_LARGEST: Final = 1 << 50
"""Beyond any size in bytes; as many of these as a list is long add up to a number of 64 bits."""

_LATEST: Final = 1 << 32
"""The second after any of these, in the year 2106."""


@dataclass(frozen=True)
class Line:
    """A line of the program and what it holds. frame: "function  file:line"; "" if not known."""

    frame: str
    size_bytes: int
    count: int


@dataclass(frozen=True)
class Curve:
    """The peaks of live and reserved memory of one step after the other, from the first.

    each: how many steps one point stands for, by their highest; the last may stand for fewer.
    """

    each: int = 1
    live: tuple[int, ...] = ()
    reserved: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A request that was refused. step: that it was made in, from 0. frame: where; "": not known.

    live_bytes, reserved_bytes: of PyTorch then. device_free_bytes: what the device had left. why:
    the verdict; "": PyTorch's own allocator refused it.
    """

    device: int
    step: int
    size_bytes: int
    device_free_bytes: int
    live_bytes: int
    reserved_bytes: int
    frame: str = ""
    why: str = ""


@dataclass(frozen=True)
class Device:
    """What a rank held of one device. live_bytes, reserved_bytes: their peaks.

    limit_bytes: the most that the process may hold of total_bytes. used_bytes: the most that was
    seen in use, by whomever: the device is looked at as the file is written.
    retries: how often memory had to be given back before a request was served. refused: how many
    requests were. lines: what was live at the moment with lines_bytes, close to the peak.
    """

    index: int
    name: str
    total_bytes: int
    limit_bytes: int
    used_bytes: int
    live_bytes: int
    reserved_bytes: int
    retries: int = 0
    refused: int = 0
    curve: Curve = Curve()
    lines_bytes: int = 0
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Summary:
    """One rank of a job, as it was at one moment.

    rank, local_rank: -1 if the process has none. world: how many ranks there are. job: what all
    processes of a job have in common, as far as they know. restart: how often torchrun had begun
    anew. started, written: seconds since 1970. steps: those that are over. state: RUNNING, ENDED or
    RAISED; error: the exception of the last.
    """

    rank: int
    local_rank: int
    world: int
    host: str
    pid: int
    job: str
    restart: int
    started: float
    written: float
    steps: int
    state: str
    error: str
    gmlake: str
    torch: str
    policy: str
    settings: str
    devices: tuple[Device, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def who(self) -> str:
        """Name the process."""
        return f"rank {self.rank}" if self.rank >= 0 else f"process {self.pid} on {self.host}"


def to_bytes(summary: Summary) -> bytes:
    """Return the file of a rank."""
    document = {"schema": SCHEMA, **asdict(summary)}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace") + b"\n"  # of half a character: JSON's escape


def of_bytes(data: bytes) -> Summary:
    """Return what a file says. Raises ValueError, which says in a line what is wrong."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is cut off, or no JSON") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("no rank wrote it")
    found: Summary = _read(Summary, document, "file")
    indices = [device.index for device in found.devices]
    refused = {refusal.device for refusal in found.refusals}
    are_possible = [_is_possible(device.curve, found.steps) for device in found.devices]
    most = MOST_RANKS if found.rank >= 0 else 1
    of = f"it is of rank {found.rank} of {found.world:,}, and at most {most:,} are known"
    for is_wrong, why in (
        (not max(found.rank, 0) < found.world <= most, of),
        (found.state not in (RUNNING, ENDED, RAISED), f"its state is {reprlib.repr(found.state)}"),
        (len(set(indices)) < len(indices), "it has a device twice"),
        (refused - set(indices), "it was refused memory of a device that it does not have"),
        (not all(are_possible), "its steps contradict each other"),
    ):
        if is_wrong:
            raise ValueError(why)
    return found


def _is_possible(curve: Curve, steps: int) -> bool:
    """Whether Steps could have made it: points are halved only where there are too many."""
    points, each = len(curve.live), curve.each
    is_halved = each > 1 and each & (each - 1) == 0 and points > MOST_POINTS // 2
    is_whole = points == len(curve.reserved) and (points == 0 or (points - 1) * each < steps)
    return is_whole and (each == 1 or is_halved)


@cache
def _parts(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _read(kind: Any, value: Any, name: str) -> Any:  # noqa: ANN401 (what the kind is)
    """Return a value as this kind. Raises ValueError for one of another kind, or out of bounds."""
    if get_args(kind):
        if type(value) is list and len(value) <= _LONGEST:
            return tuple([_read(get_args(kind)[0], each, name) for each in value])
        wanted = f"a list of at most {_LONGEST:,}"
    elif kind is str:
        if type(value) is str and len(value) <= MOST_TEXT:
            return printable(value)
        wanted = f"a text of at most {MOST_TEXT} characters"
    elif kind is int:
        least = -1 if name in ("rank", "local_rank") else 0
        if type(value) is int and least <= value < _LARGEST:
            return value
        wanted = f"a whole number from {least} to 2^50"
    elif kind is float:
        if type(value) in (int, float) and 0 <= value < _LATEST:
            return value
        wanted = "seconds from 1970 to 2106"
    else:
        if type(value) is dict:
            return kind(**{part: _read(of, value.get(part), part) for part, of in _parts(kind)})
        wanted = "an object"
    raise ValueError(f"its {name} is not {wanted}: {reprlib.repr(value)}")


class Steps:
    """The peaks of each step; once there are too many points, two become one."""

    def __init__(self) -> None:
        self._each = 1
        self._inside = 0  # steps that the last point stands for
        self._live: list[int] = []
        self._reserved: list[int] = []

    def add(self, live_bytes: int, reserved_bytes: int) -> None:
        """Add the peaks of the next step."""
        if self._inside % self._each == 0:
            if len(self._live) == MOST_POINTS:
                self._live, self._reserved = halved(self._live), halved(self._reserved)
                self._each *= 2
            self._live.append(0)
            self._reserved.append(0)
            self._inside = 0
        self._inside += 1
        self._live[-1] = max(self._live[-1], live_bytes)
        self._reserved[-1] = max(self._reserved[-1], reserved_bytes)

    def curve(self) -> Curve:
        """Return the curve so far."""
        return Curve(self._each, tuple(self._live), tuple(self._reserved))


def halved(points: list[int]) -> list[int]:
    """Return half as many points, each the higher one of two."""
    return [max(points[at : at + 2]) for at in range(0, len(points), 2)]
