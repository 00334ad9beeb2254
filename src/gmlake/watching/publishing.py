"""gmlake.publish(): lets `gmlake top` follow the lakes of this process."""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gmlake import _core
from gmlake.errors import needing_torch
from gmlake.watching.neighbours import name_of

if TYPE_CHECKING:
    from gmlake.lake import Lake

VARIABLE: Final = "GMLAKE_TOP"
"""Set to 1: the lakes that serve PyTorch are published from the first request on."""

_published: Final[list[bool]] = []


def publish(lake: Lake | None = None) -> None:
    """Let `gmlake top` follow a lake, or, without an argument, the lakes that serve PyTorch.

    Lakes of PyTorch that are created later, with the first request to their device, are included.
    The process answers who asks for the counters, of this user, over a socket that goes with it.
    GMLAKE_TOP=1 in the environment does the same for PyTorch. Without CUDA there is nothing to
    publish, and a GmlakeWarning says so once.

    Raises OSError if no socket can be made, and ValueError for a closed lake.
    """
    if lake is not None:
        lake.publish(name_of("top"))
        return
    with needing_torch("gmlake.publish()"):
        from gmlake.pytorch import device, notices

        if absence := device.absence():
            notices.once("top", f"gmlake.publish() publishes nothing: {absence}")
            return
    _core.torch_publish(name_of("top"))
    if not _published:
        os.register_at_fork(after_in_child=_publish_in_child)
        _published.append(True)


def publish_if_asked() -> None:
    """Publish the lakes that serve PyTorch if GMLAKE_TOP=1; warn if that is impossible."""
    if os.environ.get(VARIABLE) != "1" or _published:
        return
    try:
        publish()
    except OSError as error:
        from gmlake.pytorch import notices

        notices.once("top", f"{VARIABLE}=1 publishes nothing: {error.strerror}")


def _publish_in_child() -> None:
    with suppress(OSError):
        _core.torch_publish(name_of("top"))
