"""Counts the calls of CUDA's driver that take or return memory, whoever in the process makes them.

CUPTI calls back at each call of the driver. Every allocator is counted alike, whether it calls the
driver itself or by way of CUDA's runtime, and a call that another library catches before the driver
sees it does not count.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_DRIVER = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_ENTER = 0  # CUPTI_API_ENTER
_MEMORY = re.compile(
    r"cuMem(?:(?:Alloc|Free|AllocFromPool)(?:Async)?|Create|Release|Map|Unmap|SetAccess"
    r"|AddressReserve|AddressFree)(?:_v\d)?(?:_ptsz)?"
)


class _CallbackData(ctypes.Structure):
    """The beginning of CUpti_CallbackData."""

    _fields_ = (("site", ctypes.c_int), ("name", ctypes.c_char_p))


_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData)
)


def load() -> Any:  # noqa: ANN401 (a library)
    """Return CUPTI, of which PyTorch loads the one that fits. Raises OSError."""
    import torch

    return ctypes.CDLL(f"libcupti.so.{(torch.version.cuda or '').partition('.')[0]}")


class Calls:
    """Counts between entry and exit; nothing where CUPTI refuses.

    One at a time in a process; other threads must not call the driver while it counts.
    """

    def __init__(self, library: Any = None) -> None:  # noqa: ANN401 (a library)
        """Count nothing yet. library: in place of CUPTI."""
        self.counts: Counter[str] = Counter()
        self.why = ""
        """Why nothing could be counted; empty where it was."""
        self._library = library
        self._subscriber = ctypes.c_void_p()
        self._callback = _CALLBACK(self._called)

    def _called(self, _user: int, _domain: int, _call: int, data: Any) -> None:  # noqa: ANN401
        told = data.contents
        name = (told.name or b"").decode()
        if told.site == _ENTER and _MEMORY.fullmatch(name):
            self.counts[name] += 1

    def __enter__(self) -> Self:
        """Begin to count."""
        try:
            library = self._library or load()
        except OSError as error:
            self.why = str(error)
            return self
        self._library = library
        refused = library.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        if not refused:
            refused = library.cuptiEnableDomain(1, self._subscriber, _DRIVER)
            if refused:
                library.cuptiUnsubscribe(self._subscriber)
        if refused:
            self._subscriber = ctypes.c_void_p()
            self.why = f"CUPTI refused: {refused}"
        return self

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        if self._subscriber.value:
            self._library.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()

    def told(self) -> dict[str, int] | None:
        """Return the counts by name, or None where nothing could be counted."""
        return None if self.why else dict(self.counts)
