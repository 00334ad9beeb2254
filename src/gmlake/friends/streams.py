"""Streams of any library, as the handles that lakes know."""

from __future__ import annotations

import operator
from typing import Final, Protocol

LASTING: Final = frozenset({0, 1, 2})
"""The handles of streams that nobody makes or destroys: both default streams, under three names."""


class CupyStream(Protocol):
    """What is used of CuPy's streams; device_id is -1 for the default ones, which all have."""

    ptr: int
    device_id: int


def handle_of(stream: object) -> int:
    """Return a stream's cudaStream_t as a number.

    stream: a number, an object with __cuda_stream__() as CuPy, Numba and CUDA Python have it, or
    one with the attribute cuda_stream, as PyTorch, or ptr, as CuPy. Raises TypeError.
    """
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    try:
        return operator.index(stream)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{stream!r} is neither a stream nor the number of one") from None
