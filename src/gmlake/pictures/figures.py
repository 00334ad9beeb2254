"""What there is to draw, as plain data: who makes a figure knows memory, who draws it does not.

Sizes are in bytes, times in seconds from the first event, addresses absolute. What has a place in a
run counts events, and may have its time beside that. Figures of one `group` show the same run: they
zoom together, and follow its slider. Every array of a
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

OTHERS = "others"
"""The key of all that is not told apart."""

CATEGORIES = ("parameter", "gradient", "optimizer state", "activation", "temporary", "unknown")
"""What memory is for, in the order in which it is stacked."""


@dataclass(frozen=True)
class Mark:
    """A point of a run. kind: "step", "phase", "out of memory" or "peak"."""

    at: float
    kind: str
    label: str
    seconds: float | None = None


@dataclass(frozen=True)
class Timeline:
    """Live and reserved bytes over a run.

    at: shape (points,), ascending, in what `unit` says. live: by the key of a legend, shape
    (points,) each, to be stacked; the peak within each stretch that was put together. reserved:
    shape (points,), or None where the recording does not say. seconds: the time of each point, None
    where no times are known.
    """

    title: str
    at: Numbers
    live: dict[str, Numbers]
    reserved: Numbers | None
    marks: tuple[Mark, ...] = ()
    note: str = ""
    unit: str = "events"
    seconds: Numbers | None = None
    group: int = 0


@dataclass(frozen=True)
class Piece:
    """A range of addresses, at the moments from `first` to `end` - 1.

    kind: "used", "free", "held" (it holds others) or "absent". key: of a legend. label: what to say
    of it. before, behind: of a free piece, what lies there and keeps it from growing.
    """

    address: int
    size_bytes: int
    kind: str
    key: str = "unknown"
    stream: int = 0
    label: str = ""
    before: str = ""
    behind: str = ""
    first: int = 0
    end: int = 1


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
    """One device's addresses. rows: stretches of home space, each with the pieces of all moments.

    shown: the moment to begin with. topic: the title without the moment. keys: of the pieces, in
    the order of their colours.
    """

    title: str
    rows: tuple[tuple[Piece, ...], ...]
    views: tuple[View, ...] = ()
    note: str = ""
    keys: tuple[str, ...] = CATEGORIES
    shown: int = 0
    topic: str = ""
    group: int = 0


@dataclass(frozen=True)
class Packing:
    """A plan or recording as rectangles, its run across and addresses up.

    Arrays of shape (rectangles,): begin and end in what `unit` says, offset and size in bytes.
    colour: an index into `keys` each, the legend. seconds: begin and end as times, None where none
    are known.
    """

    title: str
    begin: Numbers
    end: Numbers
    offset: Numbers
    size: Numbers
    colour: NDArray[np.int32]
    keys: tuple[str, ...]
    labels: tuple[str, ...] = ()
    unit: str = "events"
    height_bytes: int = 0
    bound_bytes: int = 0
    note: str = ""
    height_name: str = "height"
    bound_name: str = "no plan is lower than"
    seconds: tuple[Numbers, Numbers] | None = None
    group: int = 0


@dataclass(frozen=True)
class Stranded:
    """What one owner's blocks keep from growing together: free pieces beside them.

    since: when the first of these blocks was made, in words.
    """

    owner: str
    kept_bytes: int
    pieces: int
    held_bytes: int
    blocks: int
    since: str


@dataclass(frozen=True)
class Moment:
    """One moment of a run. name: as in "at the peak". says: the headline, and more sentences."""

    at: int
    name: str
    says: tuple[str, ...]
    live_bytes: int
    stranded: tuple[Stranded, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True)
class Moments:
    """The moments to go to, in their order.

    shown: the one that matters. topic: the title without the moment.
    """

    title: str
    moments: tuple[Moment, ...]
    shown: int
    note: str = ""
    topic: str = ""
    group: int = 0


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
    "function  file:line". counts: how many there are from which moment on, as (moment, count);
    empty for what is shown at one moment only. one_bytes: the size of each.
    """

    size_bytes: int
    count: int
    category: str
    site: str
    frames: tuple[str, ...] = ()
    address: int = 0
    stream: int = 0
    counts: tuple[tuple[int, int], ...] = ()
    one_bytes: int = 0


@dataclass(frozen=True)
class Blocks:
    """The top blocks of one moment, largest first; those of others have a count of 0.

    topic: the title without the moment.
    """

    title: str
    rows: tuple[Block, ...]
    total_bytes: int
    note: str = ""
    topic: str = ""
    group: int = 0


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
    " | Moments"
)


@dataclass(frozen=True)
class Report:
    """A page: figures in the order in which they are drawn, and facts above them."""

    title: str
    facts: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...] = field(default=())
