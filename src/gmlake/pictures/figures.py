"""What there is to draw, as plain data: who makes a figure knows memory, who draws it does not.

Sizes are in bytes, times in seconds from the first event, addresses absolute. Every array of a
figure that a page draws has at most a few thousand entries: who makes it aggregates, and says in
`note` what was put together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]

PUT_TOGETHER = "many small"
"""The key of a packing's rectangles that stand for several each; drawn pale, below all others."""

CATEGORIES = ("parameter", "gradient", "optimizer state", "activation", "temporary", "unknown")
"""What memory is for, in the order in which it is stacked."""


@dataclass(frozen=True)
class Mark:
    """A point of a run. kind: "step", "phase" or "out of memory"."""

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


Figure: TypeAlias = "Timeline | AddressMap | Packing | Policies | Blocks"


@dataclass(frozen=True)
class Report:
    """A page: figures in the order in which they are drawn, and facts above them."""

    title: str
    facts: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...] = field(default=())
