"""How the lakes below PyTorch are opened, without PyTorch itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmlake import _core

if TYPE_CHECKING:
    from gmlake.pytorch.session_settings import Settings

_HANDLES: Final = {"": 0, "posix_fd": 1, "fabric": 8}  # CUmemAllocationHandleType


def configure(settings: Settings) -> None:
    """Let lakes be opened with these settings; ValueError where one is open with others."""
    _core.torch_configure(
        "cuda",
        settings.policy,
        settings.capacity_bytes,
        tuple(sorted(settings.knobs.items())),
        _HANDLES[settings.handle_type],
    )
