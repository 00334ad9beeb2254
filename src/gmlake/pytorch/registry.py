"""How the lakes below PyTorch are opened, without PyTorch itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmlake import _core

if TYPE_CHECKING:
    from gmlake.pytorch.settings import Settings

_HANDLES: Final = {"": 0, "posix_fd": 1, "fabric": 8}  # CUmemAllocationHandleType
# The driver takes as long for a chunk of 2 MiB as for one of 16: on a large device larger ones cost
# less time, and little of its memory.
_MOST_CHUNKS: Final = {"max_chunks": 20480}


def configure(settings: Settings) -> None:
    """Let lakes be opened with these settings; ValueError where one is open with others."""
    _core.torch_configure(
        "cuda",
        settings.policy,
        settings.capacity_bytes,
        tuple(sorted({**_MOST_CHUNKS, **settings.knobs}.items())),
        _HANDLES[settings.handle_type],
        settings.check_order,
    )
