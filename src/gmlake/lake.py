"""Lake: one device's memory under one policy, with sizes and settings as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake import _core
from gmlake.elastic_memory import ElasticMemory
from gmlake.errors import Error
from gmlake.settings import parse_capacity, settings_of
from gmlake.units import exact_size, parse_size

if TYPE_CHECKING:
    from typing_extensions import Self

    from gmlake.snapshots import Snapshot

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

    def allocate(self, size: int | str, stream: int = 0) -> _core.Block:
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
        granule = _core.device_describe(driver, device)["granularity_bytes"]
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
