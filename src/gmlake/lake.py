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
    """Everything gmlake holds on one device: a driver, a policy, one lock.

    driver: "cuda" (a real device), "host" (real bytes in host memory, for tests) or "sim"
        (accounting only, of any capacity).
    policy: one of gmlake.policies(); "stitch" is gmlake's own.
    capacity: the most memory to hold, in bytes or as text ("80GiB"). None: all that the device
        has; "sim" has 80 GiB then, "host" 1 GiB.
    device: ordinal of the device.
    can_sleep: whether sleep() and wake() work, which give all memory back to the device and take
        it again at the same addresses.
    knobs: settings of the policy by name, see gmlake.knobs(); sizes may be text, and settings
        that have words are given by them, as in economy="memory".

    Raises ValueError for an unknown driver, policy or knob and for a value out of range,
    DriverError where the driver or device is not there, OutOfMemoryError, UnsupportedError.

    A lake may be used from any thread. It is a context manager that closes itself; after close()
    every use is a ValueError. A Block that is collected does not free its memory, and keeps its
    lake alive; closing the lake gives everything back.
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
        """Serve a size, in bytes or as text ("10MiB"), for use on a stream; return a Block.

        stream: its handle as an integer. Size 0 gives a Block with address 0 that holds nothing.
        Raises OutOfMemoryError after everything was tried, ValueError for a size above 2**48,
        DriverError.
        """
        return super().allocate(parse_size(size) if isinstance(size, str) else size, stream)

    def elastic(self, size: int | str, stream: int = 0) -> ElasticMemory:
        """Reserve addresses for memory that grows and shrinks, at most `size`; it has none yet.

        size: in bytes or as text ("4GiB"), rounded up to whole chunks. stream: its handle, on which
        the work that uses it is queued. Raises UnsupportedError for a policy other than "stitch"
        and "plan" and for an arena, ValueError for a size of 0 or above 2**48, OutOfMemoryError
        without addresses, DriverError.
        """
        return ElasticMemory(self, parse_size(size) if isinstance(size, str) else size, stream)

    def sleep(self, backup: str | None = None, folder: str | None = None) -> dict[str, int]:
        """Give all memory back to the device; addresses stay.

        backup: how what blocks hold is saved: "cpu", "disk" (in a file in the folder), None (it is
        lost). Returns a dict: released_bytes, kept_bytes, saved_bytes, time_ns. Raises ValueError
        where it sleeps already, UnsupportedError for a lake that was not opened with can_sleep,
        and DriverError; then everything is as before.
        """
        return _core.sleep_lakes((("", self, backup, folder),))

    def wake(self) -> dict[str, int]:
        """Take memory again at the same addresses, and copy back what was saved.

        Returns a dict as sleep() does. Raises OutOfMemoryError where the device has not enough,
        ValueError where it is awake, DriverError; then it sleeps as before.
        """
        return _core.wake_lakes((("", self, None, None),))

    def snapshot(self, device: int = 0) -> Snapshot:
        """Return what is held, and the events that keep_history() has kept.

        device: the ordinal to show. Raises ValueError if the lake is closed.
        """
        from gmlake.snapshots.whole import snapshot_lake

        return snapshot_lake(self, device)

    def __repr__(self) -> str:
        """Say whether it is open and what it holds."""
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
        msg = f"a capacity of {str(capacity)!r} does not hold one granule of {exact_size(granule)}"
        raise ValueError(msg) from None


def check_device(device: int) -> int:
    """Return the ordinal; ValueError where no device can have it."""
    if not 0 <= device < _DEVICE_LIMIT:
        msg = f"device {device} is outside 0 to {_DEVICE_LIMIT - 1}"
        raise ValueError(msg)
    return device
