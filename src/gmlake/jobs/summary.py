"""What one rank leaves of itself: a small file of JSON, and how it is read.

Every list in it is bounded, so that the file stays below 50 KiB however long the program ran.
Sizes are in bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Final, get_args, get_type_hints

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

_LONGEST: Final = 1 << 12
_LARGEST: Final = 1 << 62


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
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def of_bytes(data: bytes) -> Summary:
    """Return what a file says. Raises ValueError, which says in a line what is wrong."""
    try:
        document = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        msg = "it is cut off, or no JSON"
        raise ValueError(msg) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        msg = "no rank wrote it"
        raise ValueError(msg)
    found = _read(Summary, document)
    assert isinstance(found, Summary)  # noqa: S101 (for the type alone)
    if found.world < 1 or found.rank >= found.world:
        msg = f"it is of rank {found.rank} of {found.world}"
        raise ValueError(msg)
    if {refusal.device for refusal in found.refusals} - {one.index for one in found.devices}:
        msg = "it was refused memory of a device that it does not have"
        raise ValueError(msg)
    for device in found.devices:
        if len(device.curve.live) != len(device.curve.reserved) or device.curve.each < 1:
            msg = "its steps contradict each other"
            raise ValueError(msg)
    return found


def _refuse(text: str) -> None:
    raise ValueError(text)


@cache
def _parts(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _read(kind: Any, value: object) -> Any:  # noqa: ANN401 (what the kind is)
    """Return a value as this kind. Raises ValueError for one of another kind, or out of bounds."""
    if kind is int:
        is_right = type(value) is int and -1 <= value < _LARGEST
    elif kind is float:
        is_right = type(value) in (int, float) and 0 <= value < _LARGEST  # type: ignore[operator]
    elif kind is str:
        is_right = type(value) is str and len(value) <= _LONGEST
    elif get_args(kind):
        is_right = type(value) is list and len(value) <= _LONGEST
        if is_right:
            inner = get_args(kind)[0]
            return tuple([_read(inner, each) for each in value])  # type: ignore[attr-defined]
    else:
        is_right = type(value) is dict
        if is_right:
            found: Any = value
            return kind(**{name: _read(of, found.get(name)) for name, of in _parts(kind)})
    if not is_right:
        msg = f"{str(value)[:40]!r} in it is no {getattr(kind, '__name__', kind)}"
        raise ValueError(msg)
    return value
