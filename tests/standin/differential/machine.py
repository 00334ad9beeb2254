"""Runs one program, step by step, and says what was not as the model and the documents say."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import queue
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from tests.standin.differential.observing import History, check_pools

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.differential.programs import Op, Program

MIB: Final = 1 << 20
STRIP: Final = 64
SLOTS: Final = 1 << 15
MOST_STRIPS: Final = 6


class Difference(Exception):  # noqa: N818 (it is what this looks for)
    """Something was not as it must be."""


def strips(size: int) -> list[int]:
    """Return where a tensor of this size is written and read: at its ends and in between."""
    count = max(1, min(MOST_STRIPS, size // (16 * STRIP)))
    last = (size - STRIP) // STRIP
    return [last * i // max(1, count - 1) * STRIP for i in range(count)] if last > 0 else [0]


def bits(tag: int, strip: int) -> int:
    """Return the number that a strip is full of. Tag 0 is zeros."""
    return tag * 64 + strip if tag else 0


def whole(size: int, *, is_expandable: bool) -> int:
    """Return how large PyTorch makes the segment of a request, or its pages."""
    if is_expandable and size >= MIB:
        return -(-size // (20 * MIB)) * 20 * MIB
    least = 20 * MIB if MIB <= size < 10 * MIB else 2 * MIB
    return max(least, -(-size // (2 * MIB)) * 2 * MIB)


def held_in_whole(device: Any, *, is_expandable: bool) -> int:
    """Return what the segments take of which a part is in use: by pages where they have any."""
    held = 0
    chunks: set[tuple[int, int]] = set()
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] != device.index:
            continue
        used = [each for each in segment["blocks"] if each["state"] != "inactive"]
        if not segment["is_expandable"]:
            held += segment["total_size"] if used else 0
            continue
        page = 20 * MIB if is_expandable and segment["segment_type"] == "large" else 2 * MIB
        begin = segment["address"] if is_expandable else 0  # else they are chunks of gmlake's
        parts = [(each["address"], each["size"]) for each in used]
        if used and segment["segment_type"] == "small":
            parts = [(segment["address"], segment["total_size"])]
        for address, size in parts:
            first, last = (address - begin) // page, (address - begin + size - 1) // page
            chunks.update((begin + number * page, page) for number in range(first, last + 1))
    return held + sum(page for _, page in chunks)


@cache
def _runtime() -> Any:
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "libcudart" in line:
            return ctypes.CDLL(line.split()[-1])
    msg = "PyTorch has no libcudart"
    raise RuntimeError(msg)


class Arena:
    """Page-locked host memory in strips: what is written, and what was read."""

    def __init__(self) -> None:
        self.memory = torch.empty(SLOTS * STRIP, dtype=torch.uint8).pin_memory()
        self.numbers = self.memory.numpy().view(np.uint64).reshape(SLOTS, STRIP // 8)
        self.used = 0

    def slot(self) -> tuple[int, torch.Tensor]:
        """Return the next strip and its number."""
        number, self.used = self.used, self.used + 1
        return number, self.memory[number * STRIP : (number + 1) * STRIP]


class Second:
    """A thread that takes steps when it is told to."""

    def __init__(self) -> None:
        self.steps: queue.Queue[Any] = queue.Queue()
        self.answers: queue.Queue[BaseException | None] = queue.Queue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (step := self.steps.get()) is not None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001
                self.answers.put(error)
            else:
                self.answers.put(None)

    def do(self, step: Callable[[], None]) -> None:
        """Let it take a step, and wait for that."""
        self.steps.put(step)
        error = self.answers.get()
        if error is not None:
            raise error

    def end(self) -> None:
        self.steps.put(None)
        self.thread.join()


@dataclass
class Outcome:
    """What came of a program. refused: the numbers of the steps that were refused memory."""

    seed: int
    problem: str = ""
    refused: list[int] = field(default_factory=list)
    left: int = 0


class Machine:
    """Runs the steps of a program. Each has a method of its name."""

    def __init__(
        self, program: Program, arena: Arena, *, gmlake: Any = None, skip: tuple[int, ...] = ()
    ) -> None:
        """Prepare. gmlake: the package, or None under PyTorch alone. skip: requests that the other
        side was refused, so that what they get here is dropped at once.
        """
        self.program, self.arena, self.gmlake, self.skip = program, arena, gmlake, set(skip)
        self.outcome = Outcome(program.seed)
        self.many = program.setting.devices
        self.streams: dict[int, Any] = {i: torch.cuda.default_stream(i) for i in range(self.many)}
        self.raw: dict[int, ctypes.c_void_p] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        self.unknown: set[int] = set()
        self.reads: list[tuple[int, int, int, int]] = []
        self.events: dict[int, torch.cuda.Event] = {}
        self.graphs: dict[int, Any] = {}
        self.graph_pools: dict[int, Any] = {}
        self.places: dict[int, tuple[int, Any]] = {}
        self.pools: dict[int, Any] = {}
        self.entered: list[tuple[int, Any]] = []
        late = program.ops[0].name != "enable"
        self.has_two = bool(gmlake) and (late or any(op.name == "disable" for op in program.ops))
        self.limits: dict[int, float] = {}
        self.shares: dict[int, float] = {}
        self.history: History | None = None
        self.asleep: set[str] = set()  # the regions that sleep
        self.late = ""
        self.enabled = False
        self.second: Second | None = None
        self.index = 0

    def run(self) -> Outcome:
        """Take all steps, compare what was read, and leave nothing."""
        misuses = control.misuses()
        try:
            for index, op in enumerate(self.program.ops):
                self.index = index
                self.step(op)
            self._compare()
            if control.misuses() > misuses:
                self.outcome.problem = "the driver says misuse"
            self._clean()
            self.outcome.problem = self.outcome.problem or self.late
        except Difference as error:
            self.outcome.problem = self._tell(str(error))
        except Exception as error:  # noqa: BLE001
            line = str(error).strip().splitlines()[:1]
            self.outcome.problem = self._tell(f"{type(error).__name__}: {' '.join(line)[:160]}")
        return self.outcome

    def _tell(self, what: str) -> str:
        op = self.program.ops[min(self.index, len(self.program.ops) - 1)]
        return f"step {self.index}, {str(op).strip()[:70]}: {what}"

    def step(self, op: Op) -> None:
        """Take one step, where it belongs."""
        method = getattr(self, f"do_{op.name}")
        if op.where == "t":
            if self.second is None:
                self.second = Second()
            self.second.do(lambda: method(**op.values))
        else:
            method(**op.values)

    def _compare(self) -> None:
        for device in range(self.many):
            torch.cuda.synchronize(device)
        for index, slot, tag, strip in self.reads:
            found, right = self.arena.numbers[slot], bits(tag, strip)
            if not (found == right).all():
                self.index = index
                wrong = int(found[0])
                whose = f"tag {wrong // 64}, strip {wrong % 64}" if wrong < 1 << 32 else hex(wrong)
                msg = f"strip {strip} has {whose} instead of tag {tag}"
                raise Difference(msg)

    def _clean(self) -> None:
        """Drop everything, and note what stays reserved."""
        if self.history:
            self.late = self.late or self.history.end()
        for device in self.limits:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        self.tensors.clear()
        self.events.clear()
        self.graphs.clear()
        self.pools.clear()
        if self.second:
            self.second.end()
        self.do_synchronize(None)
        torch.cuda.empty_cache()
        for each in self.raw.values():
            _runtime().cudaStreamDestroy(each)
        self.outcome.left = sum(torch.cuda.memory_reserved(i) for i in range(self.many))
        self.do_disable()

    def on(self, stream: int) -> Any:
        """Return a context in which a stream is current."""
        return torch.cuda.stream(self.streams[stream])

    # Steps.

    def do_enable(self) -> None:
        self._switch(to=True)

    def do_disable(self) -> None:
        self._switch(to=False)

    def _switch(self, *, to: bool) -> None:
        """Turn gmlake on or off; it may refuse while a pool is entered or a graph captured."""
        if not self.gmlake or self.enabled == to:
            return
        try:
            (self.gmlake.enable if to else self.gmlake.disable)()
        except RuntimeError:
            if not self.entered and all(state == "done" for _, state in self.graphs.values()):
                raise
        else:
            self.enabled = to

    def do_pace(self, word: str, lag: int) -> None:
        control.set_pace(word, lag)

    def do_make_stream(self, stream: int, device: int, kind: str) -> None:
        if kind in ("raw", "blocking"):
            handle = ctypes.c_void_p()
            with torch.cuda.device(device):
                assert (
                    _runtime().cudaStreamCreateWithFlags(ctypes.byref(handle), kind == "raw") == 0
                )
            self.raw[stream] = handle
            self.streams[stream] = torch.cuda.ExternalStream(handle.value, device)
        else:
            self.streams[stream] = torch.cuda.Stream(device, priority=-(kind == "priority"))

    def do_destroy_stream(self, stream: int) -> None:
        del self.streams[stream]
        assert _runtime().cudaStreamDestroy(self.raw.pop(stream)) == 0

    def do_alloc(  # noqa: PLR0913
        self,
        tensor: int,
        size: int,
        stream: int,
        *,
        pool: int | None = None,
        graph: int | None = None,
        region: str | None = None,
        backup: str | None = None,
    ) -> None:
        device = self.streams[stream].device
        others = [i for i in range(self.many) if i != device.index]
        before = [torch.cuda.memory_reserved(i) for i in others]
        watched = self.limits.get(device.index)
        had = torch.cuda.memory_reserved(device) if watched is not None else 0
        with self.on(stream), ExitStack() as stack:
            if pool is not None:
                stack.enter_context(torch.cuda.use_mem_pool(self.pools[pool]))
            if region is not None and self.gmlake:
                name = f"{region} of {self.program.seed}"
                stack.enter_context(self.gmlake.region(name, backup=backup))
            made = self._request(size, device)
        if [torch.cuda.memory_reserved(i) for i in others] != before:
            msg = "what another device has reserved changed"
            raise Difference(msg)
        if watched is not None:
            has = torch.cuda.memory_reserved(device)
            if has > max(had, watched):
                msg = f"{has} bytes are reserved, {watched:.0f} are allowed"
                raise Difference(msg)
        if made is None:
            return
        if self.index in self.skip:
            self.unknown.discard(tensor)
            return
        self.tensors[tensor] = made
        self.unknown.discard(tensor)
        if graph is not None:
            self.places[tensor] = (made.data_ptr(), ("graph", graph))
        else:
            inside = pool if pool is not None else self.entered[-1][0] if self.entered else None
            self.places[tensor] = (made.data_ptr(), ("pool", inside))

    def _request(self, size: int, device: Any) -> torch.Tensor | None:
        try:
            return torch.empty(size, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            self._refused(size, device)
            return None

    def _refused(self, size: int, device: Any) -> None:
        """Note it, unless what two allocators hold in part is in the way.

        What is from before gmlake, or is made while that is off, lies in PyTorch's segments, of
        which only those that are empty go back to the device, and none during a capture. In one
        allocator, other tensors use what is left in them, and what was cached before a limit.
        """
        is_expandable = bool(self.program.setting.conf)
        needed = whole(size, is_expandable=is_expandable)
        held = held_in_whole(device, is_expandable=is_expandable)
        if any(state != "done" for _, state in self.graphs.values()):
            held = torch.cuda.memory_reserved(device)
        if not self.has_two or held + needed <= self._allowed(device):
            self.outcome.refused.append(self.index)

    def _allowed(self, device: Any) -> float:
        return self.shares.get(device.index, 1.0) * self.program.setting.capacity

    def do_resize(self, tensor: int, size: int, stream: int) -> None:
        found = self.tensors.get(tensor)
        if found is None:
            return
        device = found.device
        watched = self.limits.get(device.index)
        had = torch.cuda.memory_reserved(device) if watched is not None else 0
        with self.on(stream):
            try:
                found.untyped_storage().resize_(size)
            except torch.OutOfMemoryError:
                self._refused(size, device)
        is_empty = not found.untyped_storage().size()
        if size and not is_empty and self.index in self.skip:
            found.untyped_storage().resize_(0)
        if watched is not None and torch.cuda.memory_reserved(device) > max(had, watched):
            msg = f"{torch.cuda.memory_reserved(device)} bytes are reserved, {watched:.0f} allowed"
            raise Difference(msg)
        self.places.pop(tensor, None)

    def _there(self, *tensors: int) -> bool:
        """Whether these tensors were served and have memory."""
        found = [self.tensors.get(each) for each in tensors]
        return all(each is not None and each.untyped_storage().size() for each in found)

    def do_write(self, tensor: int, stream: int, tag: int) -> None:
        if not self._there(tensor):
            return
        self.unknown.discard(tensor)
        found = self.tensors[tensor]
        handle = ctypes.c_void_p(self.streams[stream].cuda_stream)
        with self.on(stream):
            for strip, at in enumerate(strips(len(found))):
                if not tag:  # zero_() of so few bytes is a kernel
                    place = ctypes.c_void_p(found.data_ptr() + at)
                    assert _runtime().cudaMemsetAsync(place, 0, STRIP, handle) == 0
                    continue
                number, source = self.arena.slot()
                self.arena.numbers[number] = bits(tag, strip)
                found[at : at + STRIP].copy_(source, non_blocking=True)

    def do_read(self, tensor: int, stream: int, tag: int) -> None:
        if not self._there(tensor) or tensor in self.unknown:
            return
        found = self.tensors[tensor]
        with self.on(stream):
            for strip, at in enumerate(strips(len(found))):
                number, target = self.arena.slot()
                self.arena.numbers[number] = 0xDEAD << 40
                target.copy_(found[at : at + STRIP], non_blocking=True)
                self.reads.append((self.index, number, tag, strip))

    def do_copy(self, target: int, source: int, streams: list[int]) -> None:
        if not self._there(target):
            return
        if not self._there(source) or source in self.unknown:
            self.unknown.add(target)
            return
        self.unknown.discard(target)
        here, there = self.tensors[target], self.tensors[source]
        with ExitStack() as stack:
            for each in reversed(streams):
                stack.enter_context(self.on(each))
            for at in strips(len(there)):
                here[at : at + STRIP].copy_(there[at : at + STRIP], non_blocking=True)

    def do_free(self, tensor: int) -> None:
        self.tensors.pop(tensor, None)

    def do_record_stream(self, tensor: int, stream: int) -> None:
        if self._there(tensor):
            self.tensors[tensor].record_stream(self.streams[stream])

    def do_wait_stream(self, later: int, earlier: int, event: bool) -> None:  # noqa: FBT001
        if event:
            self.streams[later].wait_event(self.streams[earlier].record_event())
        else:
            self.streams[later].wait_stream(self.streams[earlier])

    def do_mark(self, event: int, stream: int) -> None:
        self.events[event] = self.streams[stream].record_event()

    def do_heed(self, event: int, stream: int | None) -> None:
        found = self.events.pop(event)
        if stream is None:
            found.synchronize()
        else:
            self.streams[stream].wait_event(found)

    def do_synchronize(self, stream: int | None) -> None:
        if stream is not None:
            self.streams[stream].synchronize()
            return
        for device in range(self.many):
            torch.cuda.synchronize(device)

    def do_advance(self, stream: int, count: int) -> None:
        handle = self.streams[stream].cuda_stream
        control.advance(handle, min(count, control.pending(handle)))

    def do_empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def do_limit(self, device: int, fraction: float) -> None:
        torch.cuda.set_per_process_memory_fraction(fraction, device)
        total = torch.cuda.get_device_properties(device).total_memory
        # Expandable segments grow by whole pages of theirs, also beyond the limit.
        slack = len(self.streams) * 20 * MIB if self.program.setting.conf else 0
        self.limits[device] = fraction * total + slack
        self.shares[device] = fraction

    def do_capture_begin(self, graph: int, pool: int, stream: int, mode: str) -> None:
        found = torch.cuda.CUDAGraph()
        entered = torch.cuda.graph(
            found,
            pool=self.graph_pools.setdefault(pool, torch.cuda.graph_pool_handle()),
            stream=self.streams[stream],
            capture_error_mode=mode,
        )
        self.graphs[graph] = (found, "begun")
        entered.__enter__()
        self.graphs[graph] = (found, entered)

    def do_capture_end(self, graph: int, stream: int) -> None:  # noqa: ARG002
        found, entered = self.graphs[graph]
        entered.__exit__(None, None, None)
        self.graphs[graph] = (found, "done")
        self._look({("graph", graph): found.pool()})

    def do_replay(self, graph: int, stream: int) -> None:
        with self.on(stream):
            self.graphs[graph][0].replay()

    def do_drop_graph(self, graph: int) -> None:
        del self.graphs[graph]
        for key in [key for key, (_, whose) in self.places.items() if whose == ("graph", graph)]:
            del self.places[key]

    def do_look_at_pools(self) -> None:
        self._look({("pool", key): pool.id for key, pool in self.pools.items()})

    def _look(self, pools: dict[Any, Any]) -> None:
        """Compare in which pool things lie. What was freed within a graph counts, too."""
        wanted: dict[int, Any] = {}
        maybe: dict[int, Any] = {}
        for tensor, (address, whose) in self.places.items():
            if whose in pools:
                (wanted if tensor in self.tensors else maybe)[address] = pools[whose]
            elif whose == ("pool", None) and tensor in self.tensors:
                wanted[address] = (0, 0)
        if problem := check_pools(wanted, maybe):
            raise Difference(problem)

    def do_make_pool(self, pool: int) -> None:
        self.pools[pool] = torch.cuda.MemPool()

    def do_drop_pool(self, pool: int) -> None:
        del self.pools[pool]

    def do_enter_pool(self, pool: int) -> None:
        entered = torch.cuda.use_mem_pool(self.pools[pool])
        entered.__enter__()
        self.entered.append((pool, entered))

    def do_leave_pool(self) -> None:
        self.do_look_at_pools()
        self.entered.pop()[1].__exit__(None, None, None)

    def do_record(self) -> None:
        self.history = History(may_stitch=bool(self.gmlake), has_elastic=self.program.setting.own)
        self.history.sleep(self.asleep)

    def do_look(self) -> None:
        if self.history and (problem := self.history.look()):
            raise Difference(problem)

    def do_record_no_more(self) -> None:
        if self.history:
            problem = self.history.look()
            self.late = self.late or self.history.end()
            self.history = None
            if problem:
                raise Difference(problem)

    def do_sleep(self, region: str) -> None:
        if self.gmlake:
            self.gmlake.sleep(f"{region} of {self.program.seed}")
            self._note_asleep({*self.asleep, region})

    def do_wake(self, region: str) -> None:
        if self.gmlake:
            self.gmlake.wake(f"{region} of {self.program.seed}")
            self._note_asleep(self.asleep - {region})

    def _note_asleep(self, regions: set[str]) -> None:
        self.asleep = regions
        if self.history:
            self.history.sleep(regions)
