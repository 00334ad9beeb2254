"""What a program that runs on the stand-in may ask of it, and tell it."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def _library() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "gmlake_standin_calls"):
        return None
    library.gmlake_standin_calls.restype = ctypes.c_uint64
    library.gmlake_standin_calls.argtypes = [ctypes.c_uint64, ctypes.POINTER(ctypes.c_char_p)]
    library.gmlake_standin_misuses.restype = ctypes.c_uint64
    library.gmlake_standin_pending.restype = ctypes.c_uint64
    library.gmlake_standin_pending.argtypes = [ctypes.c_void_p]
    library.gmlake_standin_advance.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.gmlake_standin_set_pace.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    return library


def is_active() -> bool:
    """Whether this process runs on the stand-in."""
    return _library() is not None


def _loaded() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise RuntimeError(
            "this process does not run on the stand-in; start it with `python -m gmlake.standin`"
        )
    return library


def calls() -> Counter[str]:
    """How often each function was called since the start or the last reset.

    A reset does not change what `--calls` prints in the end.
    """
    library = _loaded()
    found: Counter[str] = Counter()
    name = ctypes.c_char_p()
    index = 0
    while True:
        count = library.gmlake_standin_calls(index, ctypes.byref(name))
        if name.value is None:
            return found
        if count:
            found[name.value.decode()] = count
        index += 1


def reset_calls() -> None:
    """Start counting again."""
    _loaded().gmlake_standin_reset_calls()


def misuses() -> int:
    """How many rules of CUDA this process has broken."""
    return int(_loaded().gmlake_standin_misuses())


def set_pace(pace: str, lag: int = 32) -> None:
    """Choose when work is done: "eager", "lag" or "manual". Raises ValueError for another word."""
    if _loaded().gmlake_standin_set_pace(pace.encode(), lag) != 0:
        raise ValueError(f"no pace is called {pace!r}; there are eager, lag and manual")


def advance(stream: int, count: int) -> None:
    """Let `count` operations happen on a stream, given as torch.cuda.Stream.cuda_stream."""
    if _loaded().gmlake_standin_advance(stream, count) != 0:
        raise ValueError(f"{stream:#x} is no stream")


def pending(stream: int) -> int:
    """Operations of a stream that were submitted and have not happened."""
    return int(_loaded().gmlake_standin_pending(stream))


@contextmanager
def paced(pace: str, lag: int = 32) -> Iterator[None]:
    """Choose the pace for a region, then go back to the default, a lag of 32."""
    set_pace(pace, lag)
    try:
        yield
    finally:
        set_pace("lag")


def read_settings() -> None:
    """Read the GMLAKE_STANDIN_* variables again, in a forked process that was given other ones.

    Raises RuntimeError where a device is in use.
    """
    if _loaded().gmlake_standin_read_settings() != 0:
        raise RuntimeError("a device is in use, so the stand-in cannot be given other settings")
