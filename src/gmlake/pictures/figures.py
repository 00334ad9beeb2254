"""Figures as plain data: their makers know about memory, the code that draws them does not.

Sizes are in bytes, times in seconds from the first event, addresses absolute. Places in a run count
events, and may have a time, too. Figures of one `group` show the same run: they zoom together, and
follow its slider. Every array of a figure that a page draws has at most a few thousand entries: its
maker aggregates, and says in `note` what was merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gmlake.pictures.drawing import Drawing

Numbers: TypeAlias = "NDArray[np.float64]"

PUT_TOGETHER = "many small"
"""The key of merged rectangles of a packing; drawn pale, below all others."""

OTHERS = "others"
"""The key of everything not distinguished."""

CATEGORIES = ("parameter", "gradient", "optimizer state", "activation", "temporary", "unknown")
"""The categories of memory, in stacking order."""


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

    at: shape (points,), ascending, in the unit `unit`. live: by the key of a legend, shape
    (points,) each, to be stacked; the peak within each merged stretch. reserved: shape (points,),
    or None if the recording does not say. seconds: the time of each point, None if no times are
    known.
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

    kind: "used", "free", "held" (it holds others) or "absent". key: of a legend. label: its
    description. before, behind: of a free piece, the neighbours that keep it from growing. pool:
    the name of its private pool; "" if it is in none.
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
    pool: str = ""


@dataclass(frozen=True)
class View:
    """A stitched range, and where its bytes lie: (address in the view, base address, size)."""

    address: int
    size_bytes: int
    is_live: bool
    pieces: tuple[tuple[int, int, int], ...]
    label: str = ""


@dataclass(frozen=True)
class AddressMap:
    """One device's addresses. rows: stretches of the base range, with the pieces of all moments.

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
    """Blocks placed over time, as rectangles: the run across, addresses up.

    Arrays of shape (rectangles,): begin and end in the unit `unit`, offset and size in bytes.
    colour: an index into `keys` each, the legend. seconds: begin and end as times, None if none are
    known.
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
    """The free pieces that one owner's blocks keep from merging.

    since: when the first of these blocks was allocated, in words.
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
    """A block that was live at the peak, or many of one place merged.

    site: where it was requested, one line; frames: the call path, innermost first, each
    "function  file:line". counts: how many there are from which moment on, as (moment, count);
    empty if shown at one moment only. one_bytes: the size of each. pool: the name of their private
    pool; "" if they are in none.
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
    pool: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The call path, and of one block where it lies."""
        where = (
            f"at {self.address:#x}" if self.address and self.count == 1 else "",
            f"stream {self.stream}" if self.stream else "",
            f"in {self.pool}" if self.pool else "",
        )
        return (*self.frames, *filter(None, where))


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


@dataclass(frozen=True)
class OwnFigure:
    """A figure that draws itself, for kinds that the page does not know.

    frame_pixels: its height in a notebook. template: of a table, below the package.
    """

    title: str
    note: str = field(default="", kw_only=True)
    frame_pixels: ClassVar[int] = 560
    template: ClassVar[str] = ""

    def draw(self) -> Drawing | None:
        """Return its picture; None for a table."""
        return None


Figure: TypeAlias = "Timeline | AddressMap | Packing | Policies | Blocks | Moments | OwnFigure"


@dataclass(frozen=True)
class Summary:
    """One of several devices in a line. says: its figures. group: that of its figures' run."""

    name: str
    says: str
    group: int
    is_refused: bool = False


@dataclass(frozen=True)
class Report:
    """A page: figures in the order in which they are drawn, and facts above them.

    summaries: of the devices, if there are several, in the order of their figures.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...] = field(default=())
    summaries: tuple[Summary, ...] = ()
