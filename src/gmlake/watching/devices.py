"""Queries devices from the driver's management library (NVML), and maps a process's devices to it.

NVML creates no CUDA context, so a query uses no device memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

_LIBRARY: Final = "libnvidia-ml.so.1"
_NAME_BYTES: Final = 96


@dataclass(frozen=True)
class Device:
    """A device of this machine. Sizes in bytes.

    index: its number there, whatever CUDA_VISIBLE_DEVICES says. used_bytes: by all processes.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return every field."""
        return asdict(self)


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Nvml:
    """The library, queried anew at every look; absent on machines without its driver."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(_LIBRARY)
            if library.nvmlInit_v2() == 0:
                self._library = library

    def devices(self) -> list[Device]:
        """Return the devices that it reports, by index; none if it is absent."""
        if self._library is None:
            return []
        count = ctypes.c_uint()
        try:
            if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
                return []
            found = [self._device(self._library, index) for index in range(count.value)]
        except AttributeError:  # an older library, or one that only looks like it
            return []
        return [device for device in found if device is not None]

    @staticmethod
    def _device(library: ctypes.CDLL, index: int) -> Device | None:
        handle, memory = ctypes.c_void_p(), _Memory()
        uuid, name = (ctypes.create_string_buffer(_NAME_BYTES) for _ in range(2))
        if library.nvmlDeviceGetHandleByIndex_v2(
            index, ctypes.byref(handle)
        ) or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        library.nvmlDeviceGetUUID(handle, uuid, _NAME_BYTES)
        library.nvmlDeviceGetName(handle, name, _NAME_BYTES)
        return Device(
            index,
            uuid.value.decode(errors="replace"),
            name.value.decode(errors="replace"),
            int(memory.total),
            int(memory.used),
        )


def device_of(ordinal: int, environment: Mapping[str, str], devices: list[Device]) -> Device | None:
    """Return the device that a process calls `ordinal`; None if that is unknown.

    environment: its variables when it started. Assumes that CUDA numbers devices as NVML does,
    which is true for devices of one kind.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        name = str(ordinal)
    else:
        names = [part.strip() for part in visible.split(",")]
        if ordinal >= len(names):
            return None
        name = names[ordinal]
    for device in devices:
        if name == str(device.index) or (name.startswith("GPU-") and device.uuid.startswith(name)):
            return device
    return None
