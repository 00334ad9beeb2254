"""One device, several processes: idle memory goes to the process that would be refused.

C does the work (csrc/torch/neighbours.c): each process gives from a thread of its own. Here it is
told the name of each device.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from gmlake import _core
from gmlake.errors import UnsupportedError
from gmlake.pytorch import compat, lakes, notices
from gmlake.watching.devices import Nvml
from gmlake.watching.neighbours import Neighbour, name_of

if TYPE_CHECKING:
    from gmlake.pytorch.session_settings import Terms

_ROOM_BYTES: Final = 1 << 30
"""For a context and the first kernels, whose memory CUDA takes itself."""

_is_watched: Final[list[bool]] = []


@dataclass(frozen=True)
class Sharing:
    """How this process shares a device; sizes in bytes.

    neighbours: how many other processes share it now; others: which. given_bytes, taken_bytes: that
    this process gave others, and that others gave for it, so far; handed_bytes: what of it came as
    files, which the driver neither took back nor cleared. longest_s: that a request waited for
    others, in seconds. why: the device is not shared, for this reason; "" where it is.
    """

    neighbours: int
    given_bytes: int
    taken_bytes: int
    handed_bytes: int
    longest_s: float
    why: str = ""
    others: tuple[Neighbour, ...] = ()


def begin(terms: Terms) -> None:
    """Share every device, from its first use to the end of the process; again: with other terms."""
    compat.when_cuda_starts(partial(_begin, terms))


def _begin(terms: Terms) -> None:
    """Tell C the name of each device; CUDA starts meanwhile, so nothing is raised."""
    if not _is_watched:
        _is_watched.append(True)
        atexit.register(_core.torch_unshare)
    try:
        free = _free_bytes()
        for number in range(torch.cuda.device_count()):
            uuid = str(torch.cuda.get_device_properties(number).uuid)
            _core.torch_share(number, name_of(uuid), terms.priority, terms.weight)
            if (short := _ROOM_BYTES - free.get(uuid, _ROOM_BYTES)) > 0:
                _core.torch_make_room(number, short)
    except (UnsupportedError, AttributeError) as error:
        notices.say(f"this process does not share its devices: {error}")


def _free_bytes() -> dict[str, int]:
    """Return what each device has left, by its UUID as PyTorch writes it; no context is made."""
    return {
        each.uuid.removeprefix("GPU-"): each.total_bytes - each.used_bytes
        for each in Nvml().devices()
    }


def sharing(device: int | None = None) -> Sharing:
    """Return how a device is shared with other processes, which are asked; None: the current one.

    Raises ValueError for a number that no device has.
    """
    number = lakes.current_device() if device is None else device
    if not 0 <= number < torch.cuda.device_count():
        raise ValueError(f"no device has the number {number}")
    found = _core.torch_sharing(number)
    others = tuple(Neighbour(*one) for one in _core.torch_neighbours(number))
    why = found["why"] or 'share="device" was not asked for, or nothing was allocated there yet'
    return Sharing(
        len(others),
        found["given_bytes"],
        found["taken_bytes"],
        found["handed_bytes"],
        found["longest_ns"] / 1e9,
        "" if found["is_shared"] else why,
        others,
    )
