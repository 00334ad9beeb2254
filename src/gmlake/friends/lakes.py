"""The lakes that PyTorch has, for those who do not need PyTorch."""

from __future__ import annotations

import os
from typing import Final

from gmlake import _core
from gmlake.lake import Lake
from gmlake.pytorch import region, registry
from gmlake.pytorch.settings import Settings

_found: Final[dict[int, Lake]] = {}


def lake_of(device: int) -> Lake:
    """Return the lake of a device, opening it if necessary. It is shared: do not close it.

    Its stats() count what PyTorch, CuPy, Numba and functions in C hold together. Raises ValueError
    for a wrong environment variable or device, DriverError, UnsupportedError and OutOfMemoryError.
    """
    lake = _found.get(device)
    if lake is None:
        _configure()
        lake = _found[device] = _core.friend_lake(Lake, device)
    return lake


def serving_lake_of(device: int) -> Lake:
    """Return the lake that serves this thread on a device: that of the region it is in, if any."""
    _configure()
    return _core.friend_serving_lake(Lake, device)


def find(device: int) -> Lake | None:
    """Return the lake of a device; None if this process has not used it, as after a fork."""
    return _found.get(device)


def known() -> list[tuple[int, Lake]]:
    """Return every device and lake that this process has used."""
    return list(_found.items())


def _configure() -> None:
    """Let the environment say how lakes are opened, where no region and no lake has said it."""
    serving = region._process.serving  # noqa: SLF001
    is_settled = serving is not None and serving._fixed is not None  # noqa: SLF001
    if not is_settled and not _core.torch_devices():
        registry.configure(Settings.of())


# The lakes of a parent belong to it: their locks may be held for ever.
os.register_at_fork(after_in_child=_found.clear)
