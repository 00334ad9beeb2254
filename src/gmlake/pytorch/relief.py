"""Who gives way before a request is refused, here or in another process.

Elastic tensors that were told to fill a device do, then regions that may be put to sleep.
C asks in the thread that allocates, which may be any thread and in the middle of any call. It waits
for another thread only while that one changes the memory of a giver, since it may leave enough; not
where it does so itself, so no two of them wait for each other; and not for long, since give() is
the user's.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import torch

from gmlake import _core
from gmlake.errors import OutOfMemoryError
from gmlake.pytorch import notices

if TYPE_CHECKING:
    from weakref import ref

T = TypeVar("T")

_PATIENCE_SECONDS: Final = 10.0  # with a thread that is inside of give()


class Giver(Protocol):
    """Holds memory of a device that it can do without."""

    rank: int
    """Those of a lower one are asked first."""

    def spare_bytes(self, device: int) -> int:
        """Return the most bytes of a device that give_way() could free."""
        ...

    def give_way(self, device: int, size_bytes: int) -> bool | None:
        """Free about so many bytes, of that device alone, and return whether any were.

        None, at once, where another thread changes its memory now.
        """

    def settles(self, seconds: float) -> bool:
        """Wait until no other thread changes its memory; return False if that takes longer."""
        ...

    @property
    def is_changed_here(self) -> bool:
        """Whether this thread is inside of its give()."""
        ...


# Changed by whole assignments only, so that a thread that looks through it sees one state.
_givers: tuple[ref[Giver], ...] = ()
_is_watched: Final[list[bool]] = []


def add(giver: ref[Giver]) -> None:
    """Ask this one, too, from now on; after those of its rank that were added before."""
    global _givers  # noqa: PLW0603 (of the process, as the device is)
    if not _is_watched:
        _is_watched.append(True)
        _core.torch_set_relief(ask)
        atexit.register(_core.torch_set_relief, None)
    known = [(each, each()) for each in (*(one for one in _givers if one != giver), giver)]
    ranked = [(held.rank, each) for each, held in known if held is not None]
    _givers = tuple(each for _, each in sorted(ranked, key=itemgetter(0)))


def ask(device: int, size_bytes: int, besides: Giver | None = None) -> bool:
    """Return whether anybody gave way for a request of that size: the first that does is enough.

    Nobody is asked where all of them together could not give what the device lacks. Where one is
    giving for another thread, that is waited for, and True says that it is over. besides: who asks,
    and is not asked.
    """
    givers = [each for each in (held() for held in _givers) if each not in (None, besides)]
    if givers:
        _core.torch_note_givers()
    lacking_bytes = lacking(device, size_bytes)
    if lacking_bytes > sum(giver.spare_bytes(device) for giver in givers):
        return False
    # Where the device has enough, a limit refused the request, and how far is not known here.
    wanted_bytes = lacking_bytes if lacking_bytes > 0 else size_bytes
    busy: Giver | None = None
    for giver in givers:
        gave = _gives_way(giver, device, wanted_bytes)
        if gave:
            return True
        busy = giver if gave is None else busy
    may_wait = besides is None and not any(giver.is_changed_here for giver in givers)
    return busy is not None and may_wait and busy.settles(_PATIENCE_SECONDS)


def lacking(device: int, size_bytes: int) -> int:
    """Return how many bytes more than a device has free a request needs; may be negative."""
    return size_bytes - int(torch.cuda.mem_get_info(device)[0])


def _gives_way(giver: Giver, device: int, size_bytes: int) -> bool | None:
    """Ask one; a failure of its is printed, as whoever asks has nothing to do with it."""
    try:
        return giver.give_way(device, size_bytes)
    except Exception:  # noqa: BLE001 (the user's give() may raise any)
        notices.say_failure("an elastic tensor or a region gives no memory, for this reason:")
        return False


def retried(
    attempt: Callable[[], T], by_processes: Callable[[], bool], by_tensors: Callable[[], bool]
) -> T:
    """Return what attempt(), which was refused, returns once it has memory, be it what others give.

    by_processes, by_tensors: ask other processes, or else those of this one; whether any gave. What
    a tensor gives may lie idle in another lake than the one that tries, until it is released to the
    device. Raises the last OutOfMemoryError when nothing is given.
    """
    torch.cuda.empty_cache()
    while True:
        try:
            return attempt()
        except OutOfMemoryError:
            if by_processes():
                continue  # the device has it, or the lake that tries
            if not by_tensors():
                raise
        with suppress(OutOfMemoryError):
            return attempt()
        torch.cuda.empty_cache()
