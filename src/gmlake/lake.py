"""Lake: one device's memory under one policy, with sizes and settings as people write them."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn

from gmlake import _core
from gmlake._core import Block, device_describe
from gmlake.errors import Error
from gmlake.settings import parse_capacity, settings_of
from gmlake.units import exact_size, format_size, parse_size

if TYPE_CHECKING:
    from typing_extensions import Self

    from gmlake.snapshots import Snapshot

__all__ = ["Block", "ElasticMemory", "Lake", "device_describe"]

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

    def __exit__(self, *_: object) -> None:
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


_DEVICE_LIMIT = 1 << 16


class Lake(_core.Lake):
    """The heap of one device: a driver, a policy, one lock.

    driver: "cuda" (a real device), "host" (real bytes in host memory, for tests) or "sim"
        (accounting only, of any capacity).
    policy: one of gmlake.policies(); "stitch" is gmlake's own.
    capacity: the maximum memory to hold, in bytes or as text ("80GiB"). None: all memory of the
        device; 80 GiB for "sim", 1 GiB for "host".
    device: ordinal of the device.
    can_sleep: whether sleep() and wake() work, which release all memory to the device and
        restore it at the same addresses.
    knobs: settings of the policy by name, see gmlake.knobs(); sizes may be text, and some
        settings take words, as in optimize_for="memory".

    Raises ValueError for an unknown driver, policy or knob and for a value out of range,
    DriverError if there is no such driver or device, OutOfMemoryError, UnsupportedError.

    A lake may be used from any thread. It is a context manager that closes itself; after close()
    every use is a ValueError. A Block that is garbage-collected does not free its memory, and keeps
    its lake alive; closing the lake returns all memory.
    """

    def __new__(
        cls,
        /,
        driver: str = "sim",
        policy: str = "stitch",
        capacity: int | str | None = None,
        device: int = 0,
        *,
        can_sleep: bool = False,
        **knobs: int | str,
    ) -> Self:
        """Open the lake."""
        capacity_bytes = parse_capacity(capacity)
        try:
            return super().__new__(
                cls,
                driver,
                policy,
                capacity_bytes,
                check_device(device),
                settings_of(knobs),
                can_sleep,
            )
        except ValueError:
            # The core sees the capacity rounded down to whole granules.
            _check_one_granule(driver, device, capacity, capacity_bytes)
            raise

    def allocate(self, size: int | str, stream: int = 0) -> Block:
        """Allocate a size, in bytes or as text ("10MiB"), for use on a stream; return a Block.

        stream: its handle as an integer. Size 0 gives an empty Block with address 0. Raises
        OutOfMemoryError after everything was tried, ValueError for a size above 2**48, DriverError.
        """
        return super().allocate(parse_size(size) if isinstance(size, str) else size, stream)

    def elastic(self, size: int | str, stream: int = 0) -> ElasticMemory:
        """Reserve addresses for an elastic buffer of at most `size` bytes, without memory yet.

        size: in bytes or as text ("4GiB"), rounded up to whole chunks. stream: the handle of the
        stream whose work uses it. Raises UnsupportedError for a policy other than "stitch" or one
        around it, and for an arena, ValueError for a size of 0 or above 2**48, OutOfMemoryError
        without addresses, DriverError.
        """
        return ElasticMemory(self, parse_size(size) if isinstance(size, str) else size, stream)

    def sleep(self, backup: str | None = None) -> dict[str, int]:
        """Release all memory to the device and keep the addresses.

        backup: where contents are saved: "cpu", None (they are lost). Returns a dict:
        released_bytes, kept_bytes, saved_bytes, time_ns. Raises ValueError if it already sleeps,
        UnsupportedError for a lake that was not opened with can_sleep, and DriverError; then
        everything is as before.
        """
        return _core.sleep_lakes((("", self, backup),))

    def wake(self) -> dict[str, int]:
        """Restore the memory at the same addresses, with the contents that were saved.

        Returns a dict as sleep() does. Raises OutOfMemoryError if the device has too little memory,
        ValueError if it is awake, DriverError; it then stays asleep.
        """
        return _core.wake_lakes((("", self, None),))

    def snapshot(self, device: int = 0) -> Snapshot:
        """Return the memory held, and the events kept by keep_history().

        device: the ordinal to show. Raises ValueError if the lake is closed.
        """
        from gmlake.snapshots.whole import snapshot_lake

        return snapshot_lake(self, device)

    def __repr__(self) -> str:
        """Describe whether it is open and the memory it holds."""
        if self.closed:
            return "<gmlake.Lake, closed>"
        stats = self.stats()
        return f"<gmlake.Lake: {stats['live_blocks']} blocks, {stats['reserved_bytes']} bytes held>"


def _check_one_granule(
    driver: str, device: int, capacity: int | str | None, capacity_bytes: int
) -> None:
    """Raise ValueError, with the capacity as it was given, if it is less than one granule."""
    try:
        granule = device_describe(driver, device)["granularity_bytes"]
    except (ValueError, OverflowError, Error):
        return
    if 0 < capacity_bytes < granule:
        raise ValueError(
            f"a capacity of {str(capacity)!r} does not hold one granule of {exact_size(granule)}"
        ) from None


def check_device(device: int) -> int:
    """Return the ordinal; ValueError if no device can have it."""
    if not 0 <= device < _DEVICE_LIMIT:
        raise ValueError(f"device {device} is outside 0 to {_DEVICE_LIMIT - 1}")
    return device
