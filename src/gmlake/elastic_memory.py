"""Memory that grows and shrinks at one address."""

from __future__ import annotations

import contextlib
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

from gmlake import _core
from gmlake.units import format_size

if TYPE_CHECKING:
    from typing_extensions import Self

    from gmlake.lake import Lake

_ON_HOST: Final = 1
_ON_CUDA: Final = 2  # as DLPack numbers them


class ElasticMemory:
    """An elastic buffer of a lake: fixed addresses, with memory from the beginning on.

    address: where it starts. size: its full capacity. chunk: the unit of growing and shrinking. All
    in bytes; made by Lake.elastic().

    It closes itself when neither it nor a tensor over it is left. Not thread-safe;
    different buffers may be used from different threads.
    """

    def __init__(self, lake: Lake, size: int, stream: int) -> None:
        self._lake = lake
        # It is open while its address is here. One call of C cannot be interrupted.
        self._open: list[int] = []
        self._open.extend(map(lake.open_elastic, (size,), (stream,)))
        self.address: Final = self._open[0]
        described = lake.describe_elastic(self.address)
        self.size: Final = described["size_bytes"]
        self.chunk: Final = described["chunk_bytes"]

    @property
    def memory(self) -> int:
        """The allocated memory in bytes; 0 after close()."""
        if not self._open or self._lake.closed:
            return 0
        return self._lake.describe_elastic(self.address)["memory_bytes"]

    @property
    def is_asleep(self) -> bool:
        """Whether its lake is asleep: its memory is not on the device."""
        return not self._lake.closed and self._lake.is_asleep

    def resize(self, size: int, ahead: int = 0, *, is_final: bool = True) -> None:
        """Resize the memory to the first `size` bytes, rounded up to whole chunks.

        ahead: extra bytes to allocate if it grows and there is spare memory. This saves driver
        calls when it grows in small steps. is_final: a lack of memory counts as a refusal; False
        for a caller that makes room then, and resizes again.

        Remaining memory keeps its contents; new memory is uninitialized. Freed memory can be reused
        at once, behind the work queued on the stream now: work of other streams must be ordered
        before that. Raises OutOfMemoryError, ValueError above the size and after close(),
        UnsupportedError for growing while a graph is captured or the lake is asleep, DriverError;
        then everything is as before.
        """
        self._check_open()
        self._lake.resize_elastic(self.address, size, ahead, is_final)

    def close(self) -> None:
        """Free memory and addresses. No tensor over it may be used afterwards."""
        if not self._lake.closed:
            taken = map(self._open.pop, range(len(self._open)))
            deque(map(self._lake.close_elastic, taken), maxlen=0)

    def dlpack(self, device: int | None = None) -> object:
        """Return a DLPack capsule of all addresses as bytes (torch.utils.dlpack.from_dlpack).

        device: the GPU's ordinal; None: the host, for the driver "host". Only the part with memory
        may be read or written. The capsule's tensors keep this object alive.
        """
        self._check_open()
        on, number = (_ON_HOST, 0) if device is None else (_ON_CUDA, device)
        address = self.address
        if device is None:
            address = self._lake.elastic_bytes(self.address)
        return _core.dlpack_bytes(self, address, self.size, on, number)

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("this elastic buffer was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """Close it if it is open. A child of fork() leaves its parent's alone."""
        with contextlib.suppress(RuntimeError, ValueError):
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an elastic buffer can be neither copied nor pickled")

    def __repr__(self) -> str:
        state = f"{format_size(self.memory)} of {format_size(self.size)}"
        return f"<gmlake.ElasticMemory at {self.address:#x}: {state if self._open else 'closed'}>"
