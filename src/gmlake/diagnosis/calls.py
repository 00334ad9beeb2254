"""Reads the collector's log of a program's driver calls: csrc/diagnosis/collect/log.h.

Each address becomes the object last allocated there. A file may be cut off anywhere, as that of a
program that was killed; the part before counts.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from gmlake.diagnosis.builder import Part, Range, TraceBuilder
from gmlake.diagnosis.object_layout import LARGEST_SIZE, READS, TOUCHES, WRITES
from gmlake.diagnosis.object_trace import ObjectTrace
from gmlake.errors import TraceError, UnsupportedError

_ALLOC, _FREE, _COPY, _SET, _KERNEL, _ACCESS, _NAME, _PLACE = range(1, 9)
_HEADER: Final = np.dtype(
    [("magic", "S16"), ("order", "u4"), ("record_bytes", "u4"), ("process", "u8"), ("", "V24")]
)
_RECORD: Final = np.dtype(
    [
        ("kind", "u4"),
        ("name", "u4"),
        ("place", "u4"),
        ("flags", "u4"),
        ("stream", "u8"),
        ("address", "u8"),
        ("size", "u8"),
        ("stride", "u8"),
        ("repeat", "u8"),
    ]
)
_MAGIC: Final = b"gmlake calls 1"
_ORDER: Final = 0x01020304
_OURS: Final = ("libgmlake_collect", "libcupti", "libsanitizer", "libcuda.so")
_MOST_FRAMES: Final = 16
_MOST_ACCESSES: Final = 50_000_000  # a program of graphs alone touches everything at every launch

_Items: TypeAlias = "dict[str, list[Part | int]]"
"""What one call reads, writes and touches."""


def read_calls(
    path: Path, name: str = "", *, element_bytes: int = 1, notes: list[str] | None = None
) -> ObjectTrace:
    """Return the objects of one process and its calls' accesses to them.

    name: of the trace. element_bytes: of each object. notes: gets what the collector could not
    find out, a line each. Objects live at the end were never freed. Raises TraceError for a file of
    another kind, and UnsupportedError with the collector's reason if it could not work.
    """
    try:
        reader = _Reader(_records(path), name, element_bytes)
        reader.read()
        if notes is not None:
            notes += reader.notes
        return reader.builder.build()
    except TraceError as error:
        error.path = str(path)
        raise


def _records(path: Path) -> np.ndarray[Any, Any]:
    data = path.read_bytes()
    if len(data) < _HEADER.itemsize:
        raise TraceError("this is no file of driver calls")
    header = np.frombuffer(data, _HEADER, 1)[0]
    if header["magic"] != _MAGIC or header["order"] != _ORDER:
        raise TraceError("this is no file of driver calls, or one of another kind of machine")
    if header["record_bytes"] != _RECORD.itemsize:
        raise TraceError("these driver calls were written by another version of gmlake")
    count = (len(data) - _HEADER.itemsize) // _RECORD.itemsize
    return np.frombuffer(data, _RECORD, count, _HEADER.itemsize)


class _Reader:
    """Goes through the records once."""

    def __init__(self, records: np.ndarray[Any, Any], name: str, element_bytes: int) -> None:
        self.builder = TraceBuilder(name)
        self.notes: list[str] = []
        self._records = records
        self._element_bytes = element_bytes
        self._names = [""]
        self._places: list[tuple[str, ...]] = [()]
        self._at: list[int] = []  # where live objects begin, ascending
        self._number: dict[int, int] = {}
        self._size: dict[int, int] = {}
        self._accesses = 0
        self._samples: dict[int, _Items] = {}

    def read(self) -> None:
        rows = self._records
        kinds = rows["kind"].tolist()
        index = 0
        while index < len(rows):
            kind = kinds[index]
            if kind == _NAME:
                index = self._read_name(index)
            elif kind == _PLACE:
                index = self._read_place(index)
            elif kind in (_ALLOC, _FREE):
                (self._alloc if kind == _ALLOC else self._free)(rows[index])
                index += 1
            elif kind in (_COPY, _SET, _KERNEL):
                end = index + 1
                while end < len(rows) and kinds[end] == _ACCESS:
                    end += 1
                self._call(kind, rows[index], rows[index + 1 : end])
                index = end
            else:
                raise TraceError("this is no driver call", event=index)

    # ---- names and places

    def _tail(self, index: int, size: int) -> tuple[bytes, int]:
        end = index + 1 + -(-size // _RECORD.itemsize)
        if size > self._records.nbytes:
            raise TraceError("a name is longer than the file", event=index)
        return self._records[index + 1 : end].tobytes()[:size], end

    def _read_name(self, index: int) -> int:
        row = self._records[index]
        if row["name"] != len(self._names):
            raise TraceError("names are not in order", event=index)
        data, end = self._tail(index, int(row["size"]))
        text = data.decode("utf-8", "replace")
        if text.startswith("error: "):
            raise UnsupportedError(text.removeprefix("error: "))
        if text.startswith("note: "):
            self.notes.append(text.removeprefix("note: "))
        self._names.append(text)
        return end

    def _read_place(self, index: int) -> int:
        row = self._records[index]
        if row["place"] != len(self._places):
            raise TraceError("places are not in order", event=index)
        data, end = self._tail(index, 4 * int(row["size"]))
        frames = [self._name(int(number)) for number in np.frombuffer(data, "u4", len(data) // 4)]
        while frames and frames[0].rpartition("  ")[2].startswith(_OURS):
            frames.pop(0)
        self._places.append(tuple(frames[:_MOST_FRAMES]))
        return end

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else ""

    def _frames(self, row: Any) -> tuple[str, ...]:  # noqa: ANN401 (a numpy record)
        number = int(row["place"])
        return self._places[number] if number < len(self._places) else ()

    # ---- objects

    def _alloc(self, row: Any) -> None:  # noqa: ANN401
        address, size = int(row["address"]), int(row["size"])
        if address in self._number or size == 0:
            raise TraceError(f"address 0x{address:x} is allocated twice")
        if size > LARGEST_SIZE:
            raise TraceError(f"an allocation of {size} bytes; at most 2^48 can be")
        self._number[address] = self.builder.alloc(
            size,
            element_bytes=self._element_bytes,
            stream=int(row["stream"]),
            frames=self._frames(row),
        )
        self._size[address] = size
        insort(self._at, address)

    def _free(self, row: Any) -> None:  # noqa: ANN401
        address = int(row["address"])
        number = self._number.pop(address, None)
        if number is None:
            raise TraceError(f"nothing is at address 0x{address:x} to be freed")
        self.builder.free(number, stream=int(row["stream"]), frames=self._frames(row))
        del self._at[bisect_right(self._at, address) - 1]

    def _holder(self, address: int) -> int | None:
        """Return where the object begins that holds an address."""
        place = bisect_right(self._at, address) - 1
        if place < 0 or address - self._at[place] >= self._size[self._at[place]]:
            return None
        return self._at[place]

    # ---- calls

    def _call(self, kind: int, row: Any, accesses: np.ndarray[Any, Any]) -> None:  # noqa: ANN401
        add: Callable[..., int] = {
            _COPY: self.builder.copy,
            _SET: self.builder.set,
            _KERNEL: self.builder.kernel,
        }[kind]
        items = self._items(accesses)
        if kind == _KERNEL and row["size"]:
            self._samples[int(row["size"])] = items
        if kind == _KERNEL and row["address"]:
            items = self._repeated(int(row["address"]))
        self._accesses += sum(map(len, items.values()))
        if self._accesses > _MOST_ACCESSES:
            raise TraceError(f"more than {_MOST_ACCESSES:,} accesses; watch a shorter run")
        add(
            self._name(int(row["name"])) or "kernel",
            **items,
            stream=int(row["stream"]),
            frames=self._frames(row),
        )

    def _items(self, accesses: np.ndarray[Any, Any]) -> _Items:
        items: _Items = {"reads": [], "writes": [], "touches": []}
        while len(accesses):
            flags, address = int(accesses["flags"][0]), int(accesses["address"][0])
            which = {READS: "reads", WRITES: "writes", TOUCHES: "touches"}.get(flags)
            if which is None:
                raise TraceError(f"an access with flags {flags}")
            if address == 0:
                items[which] += [self._number[start] for start in self._at]
                accesses = accesses[1:]
                continue
            start = self._holder(address)
            if start is None:
                raise TraceError(f"an access to address 0x{address:x}, where nothing lives")
            count = _count_alike(accesses, start, self._size[start])
            runs = _runs(accesses[:count], start, self._size[start])
            items[which].append(Part(self._number[start], runs))
            accesses = accesses[count:]
        return items

    def _repeated(self, number: int) -> _Items:
        """Return the accesses of an earlier launch of the kernel, as far as its objects live."""
        before = self._samples.get(number, {})
        live = set(self._number.values())
        found = [
            item
            for items in before.values()
            for item in items
            if (item.object if isinstance(item, Part) else item) in live
        ]
        return {"touches": found}


def _count_alike(accesses: np.ndarray[Any, Any], start: int, size: int) -> int:
    """Return how many of the first accesses have one kind and begin in one object."""
    differs = accesses["flags"] != accesses["flags"][0]
    differs |= accesses["address"] - np.uint64(start) >= np.uint64(size)
    return int(differs.argmax()) if differs.any() else len(accesses)


def _runs(accesses: np.ndarray[Any, Any], start: int, size: int) -> list[Range]:
    rows = zip(
        (accesses["address"] - np.uint64(start)).tolist(),
        accesses["size"].tolist(),
        accesses["stride"].tolist(),
        accesses["repeat"].tolist(),
        np.maximum(accesses["name"], 1).tolist(),  # the weight
        strict=True,
    )
    return [
        (*run, weight)
        for offset, length, stride, repeat, weight in rows
        for run in _clipped(offset, (length, stride, repeat), size)
    ]


def _clipped(
    offset: int, run: tuple[int, int, int], size: int
) -> tuple[tuple[int, int, int, int], ...]:
    """Return the runs clipped to an object: a copy may continue into the next one."""
    length, stride, repeat = run
    if length <= 0 or repeat <= 0:
        raise TraceError("an access of no bytes")
    if stride < length:
        stride, length, repeat = length * repeat, length * repeat, 1
    whole = min(repeat, max(0, (size - offset - length) // stride + 1))
    runs = [(offset, length, stride, whole)] if whole else []
    rest = size - offset - whole * stride
    if whole < repeat and rest > 0:
        runs.append((offset + whole * stride, min(length, rest), length, 1))
    return tuple(runs)
