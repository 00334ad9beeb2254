"""The processes that share a device, and what each of them has."""

from __future__ import annotations

import os
from typing import NamedTuple

from gmlake import _core


class Neighbour(NamedTuple):
    """Another process that shares a device; sizes in bytes.

    process: its number; 0 if it has none here, as in another container. priority: see enable().
    held_bytes: by gmlake on the device; idle_bytes: what of it the process could give. passed_over:
    why it is asked for nothing until it answers, "stopped" or "no answer"; "" if it answers.
    """

    process: int
    priority: int
    held_bytes: int
    idle_bytes: int
    passed_over: str


def name_of(what: str) -> str:
    """Return the name by which processes of one runtime folder find each other.

    what: the UUID of a device, as PyTorch or NVML writes it, or another purpose.
    """
    return f"{os.environ.get('XDG_RUNTIME_DIR', '')}/{what.removeprefix('GPU-')}"


def who_share(uuid: str) -> list[Neighbour]:
    """Ask all processes of this user that share a device what they have."""
    return [Neighbour(*one) for one in _core.torch_look_at(name_of(uuid))]
