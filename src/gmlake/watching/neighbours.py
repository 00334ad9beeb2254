"""The processes that share a device, and what each of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gmlake import _core
from gmlake.watching import folders

if TYPE_CHECKING:
    from pathlib import Path


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


def name_of(folder: Path, uuid: str) -> str:
    """Return the name by which a device is shared. uuid: as PyTorch writes it, or NVML."""
    return str(folder / uuid.removeprefix("GPU-"))


def who_share(uuid: str) -> list[Neighbour]:
    """Ask all processes of this user that share a device what they have."""
    names = [name_of(folder, uuid) for folder in folders.candidates()]
    return [Neighbour(*one) for name in names for one in _core.torch_look_at(name)]
