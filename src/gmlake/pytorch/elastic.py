"""Tensors that grow and shrink by rows at one address, as caches of keys and values do."""

# mypy: allow-untyped-calls

from __future__ import annotations

import math
import operator
import weakref
from contextlib import suppress
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, SupportsIndex

import torch
from torch.utils.dlpack import from_dlpack

from gmlake import _core
from gmlake.errors import OutOfMemoryError
from gmlake.interop.shared_lakes import serving_lake_of
from gmlake.pytorch import lakes, relief
from gmlake.pytorch.compat import current_stream
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

    from gmlake.lake import ElasticMemory

_AHEAD_PART: Final = 32  # of its memory may be ahead of the rows
_LEAVE_BYTES: Final = 256 << 20
_PATIENCE_SECONDS: Final = 5.0  # with the program's lock


class Lock(Protocol):
    """A lock as those of threading."""

    def acquire(self, *, timeout: float) -> bool:
        """Take it, and return whether that was possible in so many seconds."""
        ...

    def release(self) -> None:
        """Let the next thread have it."""
        ...


class Elastic:
    """A tensor with reserved addresses for all rows and memory for its first rows.

    shape: the full capacity; the first dimension counts rows. dtype, device: as of a tensor. rows:
    the current number of rows. tensor: these rows, a torch tensor without a copy. whole: the
    full-capacity tensor, whose address never changes. Only its first `rows` may be accessed:
    other rows are an illegal address or another tensor's memory. memory_bytes: its device memory,
    in whole chunks of `chunk_bytes`, a little of it ahead of use.

    Made by gmlake.elastic(). It frees everything at close(), or when neither it nor a tensor over
    it is left. Not thread-safe, except that it gives way to requests of other threads.
    """

    rank = 0

    def __init__(
        self, memory: ElasticMemory, shape: tuple[int, ...], dtype: torch.dtype, device: int
    ) -> None:
        self._memory = memory
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self.shape: Final = shape
        self.dtype: Final = dtype
        self.device: Final = torch.device("cuda", device)
        as_bytes = from_dlpack(memory.dlpack(device))
        self._whole: torch.Tensor | None = (
            as_bytes[: shape[0] * self._row_bytes].view(dtype).view(shape)
        )
        self._rows = 0
        self._give: Callable[[int], int] | None = None
        self._lock: Lock | None = None
        # Held while its memory changes; `with` takes it in C, so no interrupt comes between.
        self._busy = RLock()
        self._giver = 0  # the thread that is inside of give()
        self._stream = torch.cuda.current_stream(device)
        self._ordered = {self._stream.cuda_stream}

    @property
    def rows(self) -> int:
        """The number of rows: as last requested, but never more than have memory."""
        return min(self._rows, self.memory_bytes // self._row_bytes)

    @property
    def whole(self) -> torch.Tensor:
        """The full-capacity tensor. Raises ValueError after close()."""
        if self._whole is None:
            raise ValueError("this elastic tensor was closed")
        return self._whole

    @property
    def tensor(self) -> torch.Tensor:
        """The current rows. Raises ValueError after close()."""
        return self.whole[: self.rows]

    @property
    def memory_bytes(self) -> int:
        """The allocated device memory in bytes."""
        return self._memory.memory

    @property
    def chunk_bytes(self) -> int:
        """The unit in which its memory grows and shrinks."""
        return self._memory.chunk

    def resize(self, rows: int) -> torch.Tensor:
        """Resize to `rows` rows and return them.

        Remaining rows keep their contents; new ones are uninitialized. The whole chunks of removed
        rows can be reused at once, behind the work queued now on the current stream and on the one
        that was current at creation: make one of these wait for other streams that use the rows.

        Growing costs driver calls. So memory that must grow grows by a 32nd part of itself if
        there is spare memory, and is kept if less than that would be freed.

        Raises torch.OutOfMemoryError with everything as before, ValueError for more rows than it
        may have and after close(), UnsupportedError for growing while a graph is captured or a
        region asleep.
        """
        with self._guard():
            wanted, held = self._look(rows)
            ahead = held // _AHEAD_PART
            if rows >= self._rows:
                self._reserve(wanted, held, ahead)
                self._order_use()
            elif wanted + ahead < held:
                self._shrink(wanted)
            self._rows = rows
            return self.whole[:rows]

    def fill(
        self,
        give: Callable[[int], int] | None = None,
        *,
        leave: int = _LEAVE_BYTES,
        lock: Lock | None = None,
    ) -> torch.Tensor:
        """Grow to as many rows as the device has free memory for, and return them.

        Memory that gmlake and PyTorch hold idle stays theirs: it serves the next step as it did the
        last one. torch.cuda.empty_cache() frees it before.

        leave: bytes of the device that stay free, for libraries that take memory by themselves
        (256 MiB).

        give: lets other requests have that memory back. Where PyTorch would be refused memory,
        give(rows) is called with the number of rows that would leave enough; it returns how many
        are still in use, and the rows behind those are removed as by resize(). It is called again
        while that is not enough and it returns fewer rows than there are; then the request is
        refused. It is not called for a request that all rows would not serve. It runs in the
        thread that allocates, inside of that call, or in one of gmlake's for another process that
        shares the device: it must not wait for other threads, resize this
        tensor, or give rows that this call is about to use. An exception is printed and counts as
        having no row to give. It stays in force until the next fill(), which may name none.

        lock: is taken before give() is called, within five seconds, or nothing is given. A program
        that uses rows while it holds a threading.RLock is so asked between its uses, except by
        itself: where the thread that holds it lacks memory, give() is called at once, even while
        other threads wait.

        No rows are given during the capture of a graph. While this tensor gives rows for one
        thread, or is resized by it, others that would be refused memory wait for that, and are
        served by what it leaves, or ask again. Raises as resize() does, but not for lack of memory;
        TypeError for a `give` that cannot be called, ValueError for a negative `leave`.
        """
        if not (give is None or callable(give)):
            raise TypeError(f"give is called with a number of rows; {give!r} cannot be")
        if leave < 0:
            raise ValueError(f"leave is a number of bytes, not {leave}")
        with self._guard():
            _, held = self._look(self.rows)
            self._give, self._lock = give, lock
            free, _ = torch.cuda.mem_get_info(self.device)
            most = min(held + max(0, free - leave), self.shape[0] * self._row_bytes)
            self._grow_towards(most, held)
            self._order_use()
            self._rows = min(self.memory_bytes // self._row_bytes, self.shape[0])
        if give is not None:
            relief.add(weakref.ref(self))
        return self.tensor

    def spare_bytes(self, device: int) -> int:
        """Return the most bytes of a device that give_way() could free."""
        if self._give is None or device != self.device.index or self._memory.is_asleep:
            return 0
        return self.memory_bytes

    @property
    def is_changed_here(self) -> bool:
        """Whether this thread is inside of its give()."""
        return self._giver == get_ident()

    def settles(self, seconds: float) -> bool:
        """Wait until no other thread changes its memory; return False if that takes longer."""
        try:
            return self._busy.acquire(timeout=seconds)
        finally:  # also where it is interrupted
            with suppress(RuntimeError):  # another thread has it
                self._busy.release()

    def give_way(self, device: int, size_bytes: int) -> bool | None:
        """Remove rows of that many bytes if give(), see fill(), can spare any; return whether so.

        gmlake calls it where a request would be refused. None: another thread resizes it now.
        """
        give, lock = self._give, self._lock
        if give is None or not self.spare_bytes(device) or self.is_changed_here:
            return False
        if lock is None:
            return self._give_way(give, size_bytes)
        if not lock.acquire(timeout=_PATIENCE_SECONDS):
            return False
        try:
            return self._give_way(give, size_bytes)
        finally:
            lock.release()

    def _give_way(self, give: Callable[[int], int], size_bytes: int) -> bool | None:
        if not self._busy.acquire(blocking=False):
            return None
        try:
            held, rows = self.memory_bytes, self.rows
            chunk = self.chunk_bytes
            needed = -(-size_bytes // chunk) * chunk
            fewer = max(0, held - needed) // self._row_bytes
            self._giver = get_ident()
            kept = _still_used(give, fewer) if rows else 0
            if kept < rows:
                self._shrink(kept * self._row_bytes)
                self._rows = kept
            return self.memory_bytes < held
        finally:
            self._giver = 0
            self._busy.release()

    def reserve(self, rows: int) -> None:
        """Allocate memory for `rows` rows ahead of time: growing to them needs no driver call.

        It is kept until rows are removed. Raises as resize() does.
        """
        with self._guard():
            self._reserve(*self._look(rows), 0)

    def close(self) -> None:
        """Free memory and addresses. No tensor over it may be used afterwards."""
        with self._guard():
            self._whole = None
            self._rows = 0
            self._memory.close()

    def _guard(self) -> RLock:
        """Return the lock of its memory. Raises RuntimeError inside of give(), which holds it."""
        if self.is_changed_here:
            raise RuntimeError("an elastic tensor cannot change while it is asked to give rows")
        return self._busy

    def _look(self, rows: int) -> tuple[int, int]:
        """Return the bytes of so many rows, and the bytes allocated now."""
        if not 0 <= operator.index(rows) <= self.shape[0]:
            raise ValueError(f"{rows} rows requested; it may have 0 to {self.shape[0]}")
        _ = self.whole
        held = self.memory_bytes
        self._rows = min(self._rows, held // self._row_bytes)  # if shrinking was interrupted
        return rows * self._row_bytes, held

    def _reserve(self, wanted: int, held: int, ahead: int) -> None:
        if wanted <= held:
            return
        self._ordered = {self._stream.cuda_stream}
        try:
            self._memory.resize(wanted, max(0, held + ahead - wanted), is_final=False)
        except OutOfMemoryError:
            self._resize_after_all(wanted)

    def _grow_towards(self, most: int, held: int) -> None:
        """Take memory of up to `most` bytes, in steps that get smaller where one is refused."""
        step = most - held
        if step > 0:
            self._ordered = {self._stream.cuda_stream}
        while step > 0:
            try:
                self._memory.resize(held + step, is_final=False)
            except OutOfMemoryError:
                step = step // 2 if step > self.chunk_bytes else 0
            held = self.memory_bytes
            step = min(step, most - held)

    def _shrink(self, wanted: int) -> None:
        """Free all memory behind so many bytes, after the work queued on the current stream."""
        self._order(torch.cuda.current_stream(self.device), before=self._stream)
        self._memory.resize(wanted)

    def _order_use(self) -> None:
        """Make a stream's first use of the memory wait for earlier uses on other streams."""
        stream = current_stream(self.device.index)
        if stream not in self._ordered and self._order(
            self._stream, before=torch.cuda.current_stream(self.device)
        ):
            self._ordered.add(stream)

    def _order(self, stream: torch.cuda.Stream, before: torch.cuda.Stream) -> bool:
        """Make `before`'s further work run after the work queued on `stream`.

        The core knows the stream that was current at creation; the current one may have work, too.
        Does nothing and returns False while a graph is captured, which queues no work.
        """
        if torch.cuda.is_current_stream_capturing():
            return False
        if stream != before:
            before.wait_stream(stream)
        return True

    def _resize_after_all(self, wanted: int) -> None:
        """Retry with idle memory that is released, and with what others give."""
        more = wanted - self.memory_bytes
        with suppress(OutOfMemoryError):
            return relief.retried(
                lambda: self._memory.resize(wanted, is_final=False),
                lambda: _core.torch_ask_neighbours(self.device.index, more),
                lambda: relief.ask(self.device.index, more, besides=self),
            )
        try:
            self._memory.resize(wanted)
        except OutOfMemoryError:
            why = _why_refused(self.device.index)
            raise torch.OutOfMemoryError(
                f"an elastic tensor on {self.device} cannot grow by {format_size(more)}: {why}"
            ) from None

    def __len__(self) -> int:
        return self.rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an elastic tensor can be neither copied nor pickled; its `tensor` can")

    def __repr__(self) -> str:
        held = format_size(self.memory_bytes)
        return (
            f"<gmlake.Elastic: {self.rows} of {self.shape[0]} rows of {list(self.shape[1:])}, "
            f"{self.dtype}, {held} on {self.device}>"
        )


def _why_refused(device: int) -> str:
    """Return all that the core knows of this thread's last refusal, in sentences."""
    account = _core.last_refusal()
    ours = sum(lake.stats()["reserved_bytes"] for lake in lakes.on_device(device))
    account["native_bytes"] = max(0, torch.cuda.memory_reserved(device) - ours)
    _, _, sentences = _core.tell_refusal(account)
    return " ".join(filter(None, sentences))


def _still_used(give: Callable[[int], int], fewer: int) -> int:
    """Ask give() for all rows but `fewer`; return how many are in use. ValueError: no number."""
    answer: object = give(fewer)
    kept = operator.index(answer) if isinstance(answer, SupportsIndex) else -1
    if kept < 0 or isinstance(answer, bool):
        raise ValueError(f"give({fewer}) returned {answer!r}, not how many rows are still in use")
    return kept


def elastic(
    shape: Sequence[int],
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    *,
    rows: int = 0,
) -> Elastic:
    """Reserve addresses for a tensor of that shape on a GPU; memory is allocated for its rows only.

    shape: the full capacity, at least one row of at least one byte. dtype: PyTorch's default unless
    given. device: the current GPU unless given. rows: the initial number of rows.

    Memory comes in chunks of 2 MiB from the lake that serves this thread: the region's inside
    gmlake.region(), otherwise the device's. Raises ValueError for an invalid shape or device,
    UnsupportedError if the policy has no chunks (it needs "stitch", or one around it),
    torch.OutOfMemoryError, and DriverError.
    """
    shape = tuple(int(size) for size in shape)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype is a torch.dtype, not {dtype!r}")
    where = torch.device("cuda" if device is None else device)
    if where.type != "cuda":
        raise ValueError(f"an elastic tensor lies on a GPU, not on {str(where)!r}")
    if not shape or min(shape) < 1:
        raise ValueError(f"an elastic tensor needs at least one row of one byte, not shape {shape}")
    torch.cuda.init()
    named: int | None = where.index
    number = lakes.current_device() if named is None else named
    stream = torch.cuda.current_stream(number).cuda_stream
    lake = serving_lake_of(number)
    try:
        memory = lake.elastic(math.prod(shape) * dtype.itemsize, stream)
    except OutOfMemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from None
    made = Elastic(memory, shape, dtype, number)
    made.resize(rows)
    return made
