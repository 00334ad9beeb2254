"""The records of a trace as numpy types; the first is `gml_request` of csrc/include/gmlake.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Records: TypeAlias = NDArray[Any]
"""A one-dimensional array of one of the structured types below."""


class Kind(IntEnum):
    """The kind of an event of a trace; the numbers are those of `gml_request_kind`."""

    ALLOC = 1
    FREE = 2
    """The memory may be reused from here on (PyTorch: free_completed)."""
    FREE_REQUESTED = 3
    """The program freed it; work on other streams may still run (no effect on a policy)."""
    SEGMENT_ALLOC = 4
    """PyTorch took memory from the driver; not replayed."""
    SEGMENT_FREE = 5
    TRIM = 6
    """The program called torch.cuda.empty_cache(); with a pool: its last use has ended."""
    OOM = 7
    """PyTorch refused `size_bytes`; `address` holds the free bytes of the device then."""
    MARK = 8
    """A step boundary; `id` is an index into the trace's labels, if it has any."""


REQUEST: Final = np.dtype(
    [
        ("id", "<u8"),
        ("size_bytes", "<u8"),
        ("address", "<u8"),
        ("time_ns", "<u8"),
        ("stream", "<u8"),
        ("kind", "<u4"),
        ("pool", "<u4"),
    ]
)
"""One event, 48 bytes. `size_bytes` is as requested; address and time are 0 if unknown.

`pool`, of ALLOC, OOM, SEGMENT_* and TRIM: the number of the private pool, counted from 1, in the
trace's `pools`; 0: none."""


class SpanKind(IntEnum):
    """The kind of a contiguous range of addresses."""

    BASE = 0
    """Physical memory at its base address."""
    VIEW = 1
    """Stitched: its bytes also have a base address."""
    SEGMENT = 3
    """Taken from the driver in one piece."""


SPAN: Final = np.dtype(
    [
        ("address", "<u8"),
        ("size_bytes", "<u8"),
        ("stream", "<u8"),
        ("pool_owner", "<u8"),
        ("pool_number", "<u8"),
        ("kind", "<u4"),
        ("is_small", "?"),
    ]
)
"""One span; `kind` is a SpanKind, the pool PyTorch's segment_pool_id."""

RANGE: Final = np.dtype(
    [
        ("address", "<u8"),
        ("size_bytes", "<u8"),
        ("requested_bytes", "<u8"),
        ("site", "<u8"),
        ("span", "<u4"),
        ("category", "i1"),
        ("is_used", "?"),
    ]
)
"""A part of a span, in address order. Used with nothing requested: lent to a view."""

START_BLOCK: Final = np.dtype(
    [
        ("id", "<u8"),
        ("address", "<u8"),
        ("block_bytes", "<u8"),
        ("requested_bytes", "<u8"),
        ("stream", "<u8"),
    ]
)
"""A block that was live before the first event. `block_bytes`: of one that stays live, as held."""

ALIGNMENT: Final = 512
"""Every live block counts with its requested size rounded up to this many bytes."""

SMALL_LIMIT: Final = 1 << 20
"""PyTorch serves requests up to this many bytes from its small pool."""

SMALL_SEGMENT: Final = 2 << 20
"""Size of every segment of PyTorch's small pool."""

MAX_POOLS: Final = 1 << 12
"""Most private pools of one trace: each costs a policy up to 0.5 MB of host memory."""

LARGEST_SIZE: Final = 1 << 48
"""No request may be larger: device addresses have 48 bits or fewer."""


def rounded(sizes: Records) -> NDArray[np.uint64]:
    """Round sizes up to the bytes that PyTorch and gmlake hold for them."""
    step = np.uint64(ALIGNMENT)
    result: NDArray[np.uint64] = (sizes + (step - np.uint64(1))) // step * step
    return result
