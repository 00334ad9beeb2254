"""The memory of tensors: one object for each storage, from its birth to its death."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from gmlake.diagnosis.builder import Item, Part, TraceBuilder
from gmlake.diagnosis.object_trace import Holder, Notes
from gmlake.diagnosis.operators import private
from gmlake.diagnosis.operators.ranges import Run, runs_of
from gmlake.diagnosis.operators.recipes import Recipe
from gmlake.pytorch import compat


class Lane:
    """The trace of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = str(device)
        self.builder = TraceBuilder(self.device)
        self.reads: list[Item] = []  # of the API that is being built
        self.writes: list[Item] = []
        self.touches: list[Item] = []
        self.names: list[str] = []  # of its objects
        self.works = array("Q")  # pairs: an API's number, its Work
        self.rounds = array("Q")  # the APIs at which they begin
        self.updates = array("Q")  # the APIs at which optimizers begin
        self.contents: dict[int, int] = {}  # of objects made of nothing but numbers; 0: no more
        self._held: dict[int, int] = {}
        self._index = device.index if device.type == "cuda" else None

    def hold(self, number: int, held: Holder) -> None:
        """Note what holds an object."""
        if number >= 0:
            self._held[number] = self._held.get(number, 0) | held

    def notes(self, apis: int, objects: int) -> Notes:
        """Return the facts beyond the trace."""
        works, held = np.zeros(apis, np.uint8), np.zeros(objects, np.uint8)
        contents = np.zeros(objects, np.int64)
        pairs = np.frombuffer(self.works.tobytes(), np.uint64).reshape(-1, 2)
        works[pairs[:, 0]] = pairs[:, 1]
        for table, known in ((held, self._held), (contents, self.contents)):
            table[list(known)] = list(known.values())
        rounds, updates = (
            np.unique(np.frombuffer(one.tobytes(), np.uint64)).astype(np.int64)
            for one in (self.rounds, self.updates)
        )
        return Notes(works, held, contents, rounds, updates)

    def stream(self) -> int:
        """Return the current stream's address."""
        if self._index is None or not torch.cuda.is_initialized():
            return 0
        return compat.current_stream(self._index)


class Entry:
    """One storage: a lane's object, -1 for one of no bytes.

    is_older: than the block. is_shared: others may access its memory without operators. content: a
    number for contents computed from numbers alone, equal for equal numbers; else 0.
    """

    __slots__ = ("content", "is_older", "is_shared", "lane", "number", "size_bytes", "stream")

    def __init__(
        self, lane: Lane, number: int, size_bytes: int, stream: int, *, is_older: bool = False
    ) -> None:
        self.is_older = is_older
        self.is_shared = False
        self.content = 0
        self.lane = lane
        self.number = number
        self.size_bytes = size_bytes
        self.stream = stream

    def item(self, tensor: torch.Tensor) -> tuple[Item | None, bool]:
        """Return the part that a tensor covers, None if empty, and whether that is exact."""
        if tensor.nbytes == self.size_bytes and tensor.is_contiguous():
            return self.number, True
        try:
            shape, strides = tuple(tensor.shape), tensor.stride()
            runs, is_exact = runs_of(shape, strides, tensor.storage_offset(), tensor.itemsize)
        except (RuntimeError, TypeError):  # nested, or of sizes that are symbols
            return self.number, False
        return self.part(runs), is_exact

    def part(self, runs: Sequence[Run]) -> Item | None:
        """Return these runs of the object; None if there are none."""
        if not runs:
            return None
        if len(runs) == 1 and runs[0] == (0, self.size_bytes, self.size_bytes, 1, 1):
            return self.number
        return Part(self.number, runs)


class _Watch(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that knows its entry."""

    __slots__ = ("entry", "key")
    entry: Entry
    key: int


class Storages:
    """Every storage that was seen and is live.

    died: called with the entry of one that dies, in the thread where it does, at any time.
    """

    def __init__(self, died: Callable[[Entry], None]) -> None:
        self._watches: dict[int, _Watch] = {}
        self._before: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._died = died
        self.is_on = True

    def remember(self) -> None:
        """Note which storages are there, for was_before()."""
        with private.without_dispatch_modes():
            for tensor in _tensors():
                with suppress(Exception):  # a subclass may raise anything here
                    self._remember(tensor)

    def _remember(self, tensor: torch.Tensor) -> None:
        for part in parts_of(tensor):
            storage = storage_of(part)
            if storage is not None:
                key = key_of(storage)
                self._before[key] = weakref.ref(storage, _Forgetting(self._before, key))

    def was_before(self, key: int) -> bool:
        """Return whether a storage was there when remember() was called."""
        return key in self._before

    def find(self, key: int) -> Entry | None:
        """Return the entry of a storage."""
        watch = self._watches.get(key)
        return None if watch is None else watch.entry

    def add(self, storage: torch.UntypedStorage, entry: Entry) -> None:
        """Add a storage, or replace its entry if it is known."""
        key = key_of(storage)
        watch = self._watches.get(key)
        if watch is None:
            watch = _Watch(storage, self._end)
            watch.key = key
        watch.entry = entry
        self._watches[key] = watch

    def live(self) -> list[Entry]:
        """Return the entries of all live storages."""
        return [watch.entry for watch in self._watches.copy().values()]

    def close(self) -> None:
        """Forget all storages, without reporting their deaths."""
        self.is_on = False
        self._watches.clear()
        self._before.clear()

    def _end(self, watch: _Watch) -> None:
        if self.is_on:
            self._watches.pop(watch.key, None)
            self._died(watch.entry)


class _Forgetting:
    """Drops a key from a table."""

    __slots__ = ("_key", "_table")

    def __init__(self, table: dict[int, Any], key: int) -> None:
        self._table = table
        self._key = key

    def __call__(self, _gone: object) -> None:
        self._table.pop(self._key, None)


def _tensors() -> Iterator[torch.Tensor]:
    """Yield the tensors that Python knows, and gradients."""
    kinds = set(_kinds(torch.Tensor))
    for tensor in [thing for thing in gc.get_objects() if type(thing) in kinds]:
        yield tensor
        with suppress(Exception):
            if tensor.is_leaf and isinstance(tensor.grad, torch.Tensor):
                yield tensor.grad


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    every: list[type] = type.__subclasses__(kind)
    for derived in every:
        yield from _kinds(derived)


def parts_of(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the dense parts of a tensor: itself, or the parts of a sparse one."""
    layout = tensor.layout
    if layout is torch.strided:
        return (tensor,)
    if layout is torch.sparse_coo:
        return (tensor._indices(), tensor._values())  # noqa: SLF001 (the others need coalescing)
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    return ()


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's storage; None if it has none, or no memory."""
    if tensor.device.type == "meta":
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def key_of(storage: torch.UntypedStorage) -> int:
    """Return the key of a live storage: its address."""
    return int(storage._cdata)  # noqa: SLF001 (its only name)


def tensors_given(
    recipe: Recipe, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[torch.Tensor, int, torch.UntypedStorage]]:
    """Yield an operator's argument tensors, their roles, and their storages."""
    roles = recipe.roles
    for place, value in enumerate(args):
        if value is not None and place < len(roles):
            for tensor, storage in with_storages(tensors_in(value)):
                yield tensor, roles[place], storage
    for name, value in kwargs.items():
        role = recipe.by_name.get(name, recipe.other)
        for tensor, storage in with_storages(tensors_in(value)):
            yield tensor, role, storage


def with_storages(
    tensors: Iterable[torch.Tensor],
) -> Iterator[tuple[torch.Tensor, torch.UntypedStorage]]:
    """Yield the parts of the tensors that have memory, with their storages."""
    for tensor in tensors:
        for part in parts_of(tensor):
            storage = storage_of(part)
            if storage is not None:
                yield part, storage


def tensors_in(value: object) -> Iterable[torch.Tensor]:
    """Return the tensors in a value, which may be a nested list."""
    if isinstance(value, torch.Tensor):
        return (value,)
    return _nested_in(value) if isinstance(value, list | tuple | dict) else ()


def _nested_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested sequences and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _nested_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _nested_in(item)


def has_tensors(value: object) -> bool:
    """Return whether a value contains a tensor."""
    return any(True for _ in tensors_in(value))
