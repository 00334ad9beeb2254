"""Settings for opening the lakes below PyTorch, without importing PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmlake import _core

if TYPE_CHECKING:
    from gmlake.pytorch.session_settings import Settings

_HANDLES: Final = {"": 0, "posix_fd": 1, "fabric": 8}  # CUmemAllocationHandleType


def configure(settings: Settings) -> None:
    """Set how lakes are opened; ValueError if one is open with other settings."""
    _core.torch_configure(
        "cuda",
        settings.policy,
        settings.capacity_bytes,
        tuple(sorted(settings.knobs.items())),
        _HANDLES[settings.handle_type],
    )
