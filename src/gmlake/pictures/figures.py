"""What there is to draw, as plain data: who makes a figure knows memory, who draws it does not.

Sizes are in bytes, times in seconds from the first event, addresses absolute. Every array of a
figure that a page draws has at most a few thousand entries: who makes it aggregates, and says in
`note` what was put together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]

PUT_TOGETHER = "many small"
"""The key of a packing's rectangles that stand for several each; drawn pale, below all others."""

CATEGORIES = ("parameter", "gradient", "optimizer state", "activation", "temporary", "unknown")
"""What memory is for, in the order in which it is stacked."""


@dataclass(frozen=True)
class Mark:
    """A point of a run. kind: "step", "phase", "out of memory" or "peak"."""

    seconds: float
    kind: str
    label: str


@dataclass(frozen=True)
class Timeline:
    """Live and reserved bytes over time.

    seconds: shape (points,), ascending. live: by category, shape (points,) each, to be stacked; the
    peak within each stretch that was put together. reserved: shape (points,), or None where the
    recording does not say. unit: what `seconds` counts where no times are known, as "events".
    """

    title: str
    seconds: Numbers
    live: dict[str, Numbers]
    reserved: Numbers | None
    marks: tuple[Mark, ...] = ()
    note: str = ""
    unit: str = "seconds"


@dataclass(frozen=True)
class Piece:
    """A range of addresses. kind: "used", "free" or "absent". label: what to say of it."""

    address: int
    size_bytes: int
    kind: str
    category: str = "unknown"
    stream: int = 0
    label: str = ""


@dataclass(frozen=True)
class View:
    """A stitched range, and where its bytes lie at home: (address in the view, at home, size)."""

    address: int
    size_bytes: int
    is_live: bool
    pieces: tuple[tuple[int, int, int], ...]
    label: str = ""


@dataclass(frozen=True)
class AddressMap:
    """One device's addresses. rows: contiguous stretches of home space, each tiled by pieces."""

    title: str
    rows: tuple[tuple[Piece, ...], ...]
    views: tuple[View, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Packing:
    """A plan or recording as rectangles, time across and address up.

    Arrays of shape (rectangles,): begin and end in seconds, or in requests where `unit` says so,
    offset and size in bytes. colour: an index into `keys` each, the legend.
    """

    title: str
    begin: Numbers
    end: Numbers
    offset: Numbers
    size: Numbers
    colour: NDArray[np.int32]
    keys: tuple[str, ...]
    labels: tuple[str, ...] = ()
    unit: str = "seconds"
    height_bytes: int = 0
    bound_bytes: int = 0
    note: str = ""


@dataclass(frozen=True)
class Policies:
    """Policies side by side: one row each, as columns; the recording's peak of live bytes."""

    title: str
    names: tuple[str, ...]
    reserved_bytes: tuple[int, ...]
    oom_counts: tuple[int, ...]
    driver_ms: tuple[float, ...]
    live_bytes: int
    note: str = ""


@dataclass(frozen=True)
class Block:
    """A block that was live at the peak, or many of one place put together.

    site: where it was asked for, one line; frames: the call path, innermost first, each
    "function  file:line".
    """

    size_bytes: int
    count: int
    category: str
    site: str
    frames: tuple[str, ...] = ()
    address: int = 0
    stream: int = 0


@dataclass(frozen=True)
class Blocks:
    """The top blocks at the peak, largest first."""

    title: str
    rows: tuple[Block, ...]
    total_bytes: int
    note: str = ""


CALL_KINDS = ("allocation", "free", "copy", "set", "kernel")
"""What a program asks of a device, in the order of their legend."""

ACCESS_KINDS = ("reads", "writes", "touches")
"""What a call does to an object; "touches" where it is not known which."""


@dataclass(frozen=True)
class Calls:
    """Calls of a program in the order of their dependencies, a lane for each stream.

    Arrays of shape (rectangles,): begin and end in times of the trace, lane and kind as indices
    into `lanes` and CALL_KINDS, count of the calls that each stands for. marks: of kind "peak".
    """

    title: str
    begin: Numbers
    end: Numbers
    lane: NDArray[np.int32]
    kind: NDArray[np.int32]
    count: NDArray[np.int64]
    labels: tuple[str, ...]
    lanes: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Lifeline:
    """An object from its allocation to its free, in times of the trace.

    accesses: (time, index into ACCESS_KINDS, what accessed it). wasted: (begin, end, pattern) of
    stretches in which it lives for nothing.
    """

    name: str
    size_bytes: int
    begin: float
    end: float
    accesses: tuple[tuple[float, int, str], ...] = ()
    wasted: tuple[tuple[float, float, str], ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Lifelines:
    """Objects, largest first, and who accesses them; colours: of patterns, grey without one."""

    title: str
    rows: tuple[Lifeline, ...]
    note: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Touched:
    """Which bytes of an object each call accesses, a row for each call.

    Arrays of shape (rectangles,): begin and end are offsets in the object, row an index into
    `rows`, weight how often each element is accessed; rows: what the calls are called.
    """

    title: str
    begin: Numbers
    end: Numbers
    row: NDArray[np.int32]
    weight: NDArray[np.int64]
    rows: tuple[str, ...]
    size_bytes: int
    note: str = ""


@dataclass(frozen=True)
class FoundRow:
    """One thing to change, or `count` alike. frames: a call path, as of a Block.

    saving_bytes: what it lowers the peak by alone. peak_bytes: the peak with it and with those in
    the rows before it; None where it is not needed for the lowest.
    """

    pattern: str
    object_name: str
    size_bytes: int
    saving_bytes: int
    distance: int
    change: str
    frames: tuple[str, ...] = ()
    count: int = 1
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Found:
    """What to change: what lowers the peak, one after another, and then what does not."""

    title: str
    rows: tuple[FoundRow, ...]
    note: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)


Figure: TypeAlias = (
    "Timeline | AddressMap | Packing | Policies | Blocks | Calls | Lifelines | Touched | Found"
)


@dataclass(frozen=True)
class Report:
    """A page: figures in the order in which they are drawn, and facts above them."""

    title: str
    facts: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...] = field(default=())
