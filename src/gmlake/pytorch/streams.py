"""Statistics of streams that lend each other memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.pytorch import lakes

if TYPE_CHECKING:
    from gmlake._core import StreamPair


def stream_pairs(device: int | None = None) -> list[StreamPair]:
    """Return what each pair of streams of a device lent each other; None: the current device.

    Each pair has owner and borrower, the handles of two streams; borrowed_bytes, the free memory of
    the owner that the borrower took, and borrows, how often; waits of the borrower for its sake,
    and refused_waits, which the setting borrow_waits prevented; and deferred_free_bytes, held now:
    freed tensors of the owner that the borrower may still use after record_stream(). Empty before
    the first request on that device.
    """
    lake = lakes.find(lakes.current_device() if device is None else device)
    return [] if lake is None else lake.stream_pairs()
