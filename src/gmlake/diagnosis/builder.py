"""Makes a trace of objects, one call for each thing that a program asks of its device."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict

import numpy as np

from gmlake.diagnosis.object_layout import (
    ACCESS,
    API,
    BEFORE,
    KEPT,
    LARGEST_SIZE,
    NO_OBJECT,
    OBJECT,
    RANGE,
    READS,
    TOUCHES,
    WRITES,
    ApiKind,
)
from gmlake.diagnosis.object_trace import ObjectTrace, Place

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gmlake.trace.layout import Records

Range: TypeAlias = (
    "tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, int] "
    "| tuple[int, int, int, int, int]"
)
"""offset, size, stride, repeat, weight: `repeat` runs of `size` bytes, the first at `offset`.

Each run begins `stride` bytes after the one before; each element is accessed `weight` times. What
is left out at the end is a stride of `size`, one run, a weight of 1.
"""


class Part(NamedTuple):
    """Some bytes of an object: its number, and ranges."""

    object: int
    ranges: Sequence[Range]


Item: TypeAlias = "int | Part"
"""What an API accesses: an object's number for all of it, or a Part."""


class How(TypedDict, total=False):
    """The keyword arguments of an API call.

    reads: objects it reads. writes: objects it overwrites in every byte. touches: objects it reads
    or writes somewhere, if more is not known. stream: 0 by default. frames, scope: where the
    program was.
    """

    reads: Iterable[Item]
    writes: Iterable[Item]
    touches: Iterable[Item]
    stream: int
    frames: tuple[str, ...]
    scope: str


_ALLOC = int(ApiKind.ALLOC)
_FREE = int(ApiKind.FREE)
_COPY = int(ApiKind.COPY)
_SET = int(ApiKind.SET)
_KERNEL = int(ApiKind.KERNEL)
_GONE, _LIVE = 0, 1


class TraceBuilder:
    """Collects APIs in order of invocation.

    Objects and APIs are numbered from 0. Sizes and offsets are in bytes. `frames` is a call path,
    the innermost frame first, each written as "function  file:line"; `scope` the name of a module.
    Impossible calls, such as an access to an object that was freed, raise ValueError. One thread at
    a time may call.
    """

    def __init__(self, name: str = "") -> None:
        """Begin with nothing. name: of the trace, for reports."""
        self._name = name
        # A word each, to be quick; build() makes records of them.
        self._apis = array("Q")  # kind | value << 8; value: the object, or how many accesses
        self._streams = array("Q")
        self._accesses = array("Q")  # flags | object << 32
        self._parts = array("Q")  # of each access with ranges: its number, how many
        self._objects = array("Q")  # three words, as the record
        self._ranges = array("Q")  # five words, as the record
        self._state = bytearray()  # of each object
        self._names: list[str] = []
        self._labels: dict[str, int] = {}
        self._label_of = array("I")
        self._places: dict[tuple[tuple[str, ...], str], int] = {((), ""): 0}
        self._place_of = array("I")

    @property
    def api_count(self) -> int:
        """How many APIs there are; the next one gets this number."""
        return len(self._label_of)

    # ---- objects

    def alloc(  # noqa: PLR0913 (each is a field of its own)
        self,
        size_bytes: int,
        *,
        name: str = "",
        element_bytes: int = 1,
        stream: int = 0,
        frames: tuple[str, ...] = (),
        scope: str = "",
    ) -> int:
        """Allocate an object of 1 to 2^48 bytes and return its number."""
        _check_stream(stream)
        number = self._add_object(size_bytes, name, element_bytes, frames, scope, 0)
        self._add_api(_ALLOC | number << 8, "alloc", stream, frames, scope)
        return number

    def exists(
        self,
        size_bytes: int,
        *,
        name: str = "",
        element_bytes: int = 1,
        frames: tuple[str, ...] = (),
        scope: str = "",
    ) -> int:
        """Return the number of an object that was there before the first API."""
        return self._add_object(size_bytes, name, element_bytes, frames, scope, BEFORE)

    def keep(self, number: int) -> None:
        """Say that an object is meant to outlive the trace: it is no leak."""
        if not 0 <= number < len(self._names):
            raise ValueError(f"there is no object {number}")
        self._objects[3 * number + 2] |= KEPT << 32

    def free(self, number: int, *, stream: int = 0, frames: tuple[str, ...] = ()) -> int:
        """Free an object; return the API's number."""
        _check_stream(stream)
        self._check_live(number)
        self._state[number] = _GONE
        return self._add_api(_FREE | number << 8, "free", stream, frames, "")

    def _add_object(  # noqa: PLR0913, PLR0917 (each is a field of its own)
        self,
        size_bytes: int,
        name: str,
        element_bytes: int,
        frames: tuple[str, ...],
        scope: str,
        flags: int,
    ) -> int:
        if not 1 <= size_bytes <= LARGEST_SIZE:
            raise ValueError(f"an object of {size_bytes} bytes; it must have 1 to 2^48")
        if not 1 <= element_bytes <= NO_OBJECT:
            raise ValueError(f"elements of {element_bytes} bytes; they must have 1 to 2^32 - 1")
        self._objects.extend((size_bytes, self._place(frames, scope), element_bytes | flags << 32))
        self._state.append(_LIVE)
        self._names.append(name)
        return len(self._names) - 1

    def _check_live(self, number: int) -> None:
        if not 0 <= number < len(self._state):
            raise ValueError(f"there is no object {number}")
        if self._state[number] == _GONE:
            shown = self._names[number] or number
            raise ValueError(f"the object {shown} was freed before")

    # ---- accesses

    def copy(self, label: str = "copy", **how: Unpack[How]) -> int:
        """Move bytes as they are; return the API's number."""
        return self._add(_COPY, label, **how)

    def set(self, label: str = "set", **how: Unpack[How]) -> int:
        """Write one value everywhere; return the API's number."""
        return self._add(_SET, label, **how)

    def kernel(self, label: str, **how: Unpack[How]) -> int:
        """Run a kernel or an operator; return the API's number."""
        return self._add(_KERNEL, label, **how)

    def _add(  # noqa: PLR0913 (each is a field of its own)
        self,
        kind: int,
        label: str,
        *,
        reads: Iterable[Item] = (),
        writes: Iterable[Item] = (),
        touches: Iterable[Item] = (),
        stream: int = 0,
        frames: tuple[str, ...] = (),
        scope: str = "",
    ) -> int:
        _check_stream(stream)
        accesses = self._accesses
        first = len(accesses)
        try:
            if reads:
                self._access(reads, READS)
            if writes:
                self._access(writes, WRITES)
            if touches:
                self._access(touches, TOUCHES)
        except BaseException:
            self._forget_from(first)
            raise
        return self._add_api(kind | (len(accesses) - first) << 8, label, stream, frames, scope)

    def _add_api(
        self, word: int, label: str, stream: int, frames: tuple[str, ...], scope: str
    ) -> int:
        number = self._labels.get(label)
        if number is None:
            number = self._labels[label] = len(self._labels)
        place = self._place(frames, scope) if frames or scope else 0
        self._apis.append(word)
        self._streams.append(stream)
        self._label_of.append(number)
        self._place_of.append(place)
        return len(self._apis) - 1

    def _forget_from(self, first: int) -> None:
        """Drop the accesses from a number on."""
        del self._accesses[first:]
        while self._parts and self._parts[-2] >= first:
            del self._ranges[-5 * self._parts[-1] :]
            del self._parts[-2:]

    def _access(self, items: Iterable[Item], flag: int) -> None:
        listed = items if isinstance(items, (tuple, list)) else list(items)
        if len(listed) > 1 and _has_twice(listed):
            listed = self._merged(listed)
        state = self._state
        for item in listed:
            number = item if type(item) is int else _object_of(item)
            if not 0 <= number < len(state) or not state[number]:
                self._check_live(number)
            if isinstance(item, Part):
                count = self._add_ranges(number, item.ranges)
                if not count:
                    continue
                self._parts.extend((len(self._accesses), count))
            self._accesses.append(flag | number << 32)

    def _merged(self, items: Sequence[Item]) -> list[Item]:
        """Return one item for each object."""
        whole: dict[int, bool] = {}
        ranges: dict[int, list[Range]] = {}
        for item in items:
            number = _object_of(item)
            self._check_live(number)
            if isinstance(item, Part):
                whole.setdefault(number, False)
                ranges.setdefault(number, []).extend(item.ranges)
            else:
                whole[number] = True
        found: list[Item] = []
        for number, has_whole in whole.items():
            parts = ranges.get(number)
            if has_whole and not parts:
                found.append(number)
            else:
                everything: list[Range] = [(0, self._objects[3 * number])] if has_whole else []
                found.append(Part(number, everything + (parts or [])))
        return found

    def _add_ranges(self, number: int, ranges: Sequence[Range]) -> int:
        size_bytes = self._objects[3 * number]
        rows: list[int] = []
        for given in ranges:
            offset, size, *rest = given
            stride = rest[0] if rest else size
            repeat = rest[1] if len(rest) > 1 else 1
            weight = rest[2] if len(rest) > 2 else 1  # noqa: PLR2004 (the fifth number)
            if (
                offset < 0
                or size < 1
                or repeat < 1
                or weight < 1
                or (repeat > 1 and stride < size)
                or offset + (repeat - 1) * stride + size > size_bytes
            ):
                raise ValueError(
                    f"the range {tuple(given)} is none within {size_bytes} bytes: "
                    "offset, size, stride, repeat, weight"
                )
            rows += (offset, size, stride if repeat > 1 else size, repeat, weight)
        self._ranges.extend(rows)
        return len(ranges)

    # ---- tables

    def _place(self, frames: tuple[str, ...], scope: str) -> int:
        if not frames and not scope:
            return 0
        key = (frames, scope)
        number = self._places.get(key)
        if number is None:
            number = self._places[tuple(frames), scope] = len(self._places)
        return number

    # ---- the result

    def build(self) -> ObjectTrace:
        """Return the trace so far. The builder can be used further."""
        return ObjectTrace(
            apis=self._api_records(),
            objects=np.frombuffer(self._objects.tobytes(), OBJECT),
            accesses=self._access_records(),
            ranges=np.frombuffer(self._ranges.tobytes(), RANGE),
            names=tuple(self._names),
            labels=tuple(self._labels),
            label_of=np.frombuffer(self._label_of.tobytes(), np.uint32),
            places=tuple(Place(frames, scope) for frames, scope in self._places),
            place_of=np.frombuffer(self._place_of.tobytes(), np.uint32),
            name=self._name,
        )

    def _api_records(self) -> Records:
        words = np.frombuffer(self._apis.tobytes(), np.uint64)
        records = np.zeros(len(words), API)
        kinds, values = words & np.uint64(0xFF), words >> np.uint64(8)
        is_access = kinds >= _COPY
        counts = np.where(is_access, values, 0)
        records["stream"] = np.frombuffer(self._streams.tobytes(), np.uint64)
        records["first_access"] = np.cumsum(counts, dtype=np.uint64) - counts
        records["access_count"] = counts
        records["object"] = np.where(is_access, NO_OBJECT, values)
        records["kind"] = kinds
        return records

    def _access_records(self) -> Records:
        words = np.frombuffer(self._accesses.tobytes(), np.uint64)
        parts = np.frombuffer(self._parts.tobytes(), np.uint64).reshape(-1, 2)
        records = np.zeros(len(words), ACCESS)
        records["object"] = words >> np.uint64(32)
        records["flags"] = words & np.uint64(0xFFFFFFFF)
        records["range_count"][parts[:, 0]] = parts[:, 1]
        records["first_range"][parts[:, 0]] = np.cumsum(parts[:, 1]) - parts[:, 1]
        return records


def _check_stream(stream: int) -> None:
    if stream >> 64:
        raise ValueError(f"stream {stream} is outside 0 to 2^64 - 1")


def _object_of(item: object) -> int:
    if type(item) is int:
        return item
    if isinstance(item, Part):
        return int(item.object)
    raise TypeError(f"{type(item).__name__} is neither an object's number nor a Part")


def _has_twice(items: Sequence[Item]) -> bool:
    numbers = {item if type(item) is int else _object_of(item) for item in items}
    return len(numbers) < len(items)
