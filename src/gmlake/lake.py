"""Lake: one device's memory under one policy, with sizes and settings as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gmlake import _core
from gmlake.errors import Error
from gmlake.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

    from gmlake.snapshots import Snapshot

_DEVICE_LIMIT = 1 << 16
_NUMBER = re.compile(r"\s*[0-9]+\s*", re.ASCII)


class Lake(_core.Lake):
    """Everything gmlake holds on one device: a driver, a policy, one lock.

    driver: "cuda" (a real device), "host" (real bytes in host memory, for tests) or "sim"
        (accounting only, of any capacity).
    policy: one of gmlake.policies(); "stitch" is gmlake's own.
    capacity: the most memory to hold, in bytes or as text ("80GiB"). None: all that the device
        has; "sim" has 80 GiB then, "host" 1 GiB.
    device: ordinal of the device.
    fail_call, fail_per_million, fail_seed: let driver calls fail, to test a program: the n-th
        one, or each with a probability.
    check_order: answer with an Error where memory would go from one stream to another, or be
        unmapped, while no call of the lake orders the two; to test a program, and slower.
    skip_calls: names of driver calls that record, wait or synchronise, as in
        stats()["driver_calls"]; these are not made and answer as if they were, to see such a test
        fail.
    knobs: settings of the policy by name, see gmlake.knobs(); sizes may be text, and settings
        that have words are given by them, as in economy="memory".

    Raises ValueError for an unknown driver, policy, call or knob and for a value out of range,
    DriverError where the driver or device is not there, OutOfMemoryError, UnsupportedError.

    A lake may be used from any thread. It is a context manager that closes itself; after close()
    every use is a ValueError. A Block that is collected does not free its memory, and keeps its
    lake alive; closing the lake gives everything back.
    """

    def __new__(  # noqa: PLR0913 (each is a setting of its own)
        cls,
        /,
        driver: str = "sim",
        policy: str = "stitch",
        capacity: int | str | None = None,
        device: int = 0,
        *,
        fail_call: int = 0,
        fail_per_million: int = 0,
        fail_seed: int = 0,
        check_order: bool = False,
        skip_calls: Iterable[str] = (),
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
                fail_call,
                fail_per_million,
                fail_seed,
                check_order,
                skip_calls,
            )
        except ValueError:
            # The core sees the capacity rounded down to whole granules.
            _check_one_granule(driver, device, capacity, capacity_bytes)
            raise

    def snapshot(self, device: int = 0) -> Snapshot:
        """Return what is held, and the events that keep_history() has kept.

        device: the ordinal to show. Raises ValueError if the lake is closed.
        """
        from gmlake.snapshots.capture import snapshot_lake

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
        msg = f"a capacity of {str(capacity)!r} does not hold one granule of {granule} bytes"
        raise ValueError(msg) from None


def parse_capacity(capacity: int | str | None) -> int:
    """Return a capacity in bytes, 0 for None; ValueError for anything below 1 byte."""
    if capacity is None:
        return 0
    size_bytes = parse_size(capacity)
    if size_bytes == 0:
        msg = "a capacity of 0 bytes serves nothing; leave it out for all the device has"
        raise ValueError(msg)
    return size_bytes


def check_device(device: int) -> int:
    """Return the ordinal; ValueError where no device can have it."""
    if not 0 <= device < _DEVICE_LIMIT:
        msg = f"device {device} is outside 0 to {_DEVICE_LIMIT - 1}"
        raise ValueError(msg)
    return device


def check_knobs(names: Iterable[str]) -> None:
    """Raise ValueError for a name that no setting has; "knob.interval" is for the core to check."""
    known = [knob["name"] for knob in _core.knobs()]
    for name in names:
        if name.partition(".")[0] not in known:
            msg = f"no setting is called {name[:60]!r}; there are: {' '.join(known)}"
            raise ValueError(msg)


def settings_of(knobs: dict[str, int | str]) -> tuple[tuple[str, int], ...]:
    """Return settings as the core takes them.

    ValueError names the one that is neither a size nor one of its words. Whether a number is in
    range is for the core to check.
    """
    check_knobs(knobs)
    words = {knob["name"]: knob["words"] for knob in _core.knobs()}
    return tuple((name, _number(name, value, words.get(name))) for name, value in knobs.items())


def word_of(name: str, value: int | str) -> int | str:
    """Return what a value of a setting is called; the value itself where it has no word."""
    words = next((knob["words"] for knob in _core.knobs() if knob["name"] == name), [])
    return words[value] if isinstance(value, int) and 0 <= value < len(words) else value


def one_of(words: list[str]) -> str:
    """Return "time, balanced or memory"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _number(name: str, value: int | str, words: list[str] | None) -> int:
    if not words or not isinstance(value, str) or _NUMBER.fullmatch(value):
        try:
            return parse_size(value)
        except ValueError as error:
            msg = f"{name}: {error}"
            raise ValueError(msg) from None
    word = value.strip().lower()
    if word not in words:
        msg = f"{name} is {value[:60]!r}, but must be {one_of(words)}"
        raise ValueError(msg)
    return words.index(word)
