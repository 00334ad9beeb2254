"""Draws programs that PyTorch's documents allow, with what each of their reads must give.

A builder follows which work comes after which, by a clock for each stream, and adds the wait that a
step lacks. So no drawn program has a race: whenever the device does its work, each read has one
right answer. A tag is what a write leaves in a tensor: a number, from which its bytes follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCK_BYTES = 2 * MIB  # what a request is counted as, at most that much more than it asks for


@dataclass(frozen=True)
class Op:
    """One step. where: "" this thread, "t" a second one, "n" the neighbour process."""

    name: str
    where: str
    values: dict[str, Any]

    def __str__(self) -> str:
        """Return it as a readable line."""
        words = " ".join(f"{key}={value}" for key, value in self.values.items())
        return f"{self.where or ' '} {self.name} {words}"


@dataclass(frozen=True)
class Setting:
    """What the processes that run a program are started with.

    conf: PYTORCH_ALLOC_CONF. own: only gmlake can run it, the model alone says what is right.
    """

    conf: str = ""
    capacity: int = 8 * GIB
    devices: int = 1
    neighbour: bool = False
    own: bool = False


@dataclass
class Program:
    """A program. It follows from its seed alone."""

    seed: int
    kind: str
    setting: Setting
    ops: list[Op] = field(default_factory=list)


@dataclass
class Tensor:
    """A tensor of a program.

    wrote: the stream and the instant of its last write. uses: the last instant on each stream.
    size: 0 while its storage is empty. tag: None while its content is not known.
    """

    number: int
    size: int
    owner: int
    wrote: tuple[int, int]
    where: str = ""
    tag: int | None = None
    uses: dict[int, int] = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)
    pool: int | None = None
    graph: int | None = None
    region: str | None = None
    full: int = 0


@dataclass
class Stream:
    """A stream of a program. clock: the last instant of each stream that its work comes after."""

    number: int
    device: int
    raw: bool = False
    silent: bool = False
    alive: bool = True
    instant: int = 0
    clock: dict[int, int] = field(default_factory=dict)
    debts: dict[int, int] = field(default_factory=dict)


@dataclass
class Graph:
    """A captured graph. steps: (target, source), or (target, tag) of what is set to a number."""

    number: int
    pool: int
    inputs: list[Tensor]
    outputs: list[Tensor] = field(default_factory=list)
    steps: list[tuple[int, int | None]] = field(default_factory=list)
    last: tuple[int, int] | None = None


def merge(into: dict[int, int], other: dict[int, int]) -> None:
    """Let a clock come after another."""
    for stream, instant in other.items():
        into[stream] = max(into.get(stream, 0), instant)


class Builder:
    """Appends valid steps to a program."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        """Begin with the default stream of each device."""
        self.program, self.rng = program, rng
        self.setting = program.setting
        self.streams = [Stream(i, i) for i in range(self.setting.devices)]
        self.tensors: list[Tensor] = []
        self.graphs: list[Graph] = []
        self.host: dict[int, int] = {}
        self.events: list[tuple[int, dict[int, int]]] = []
        self.limits = [self.setting.capacity - 8 * MIB] * self.setting.devices
        self.sizes = [self._draw_size() for _ in range(rng.randint(2, 5))]
        self.fullest = rng.choice([0.3, 0.6, 0.9, 0.98])
        self.last_tag = 0
        self.count = 0
        self.late = self.setting.conf == ""
        self.entered: int | None = None
        self.capturing = False
        self.captured_on: int | None = None

    def _draw_size(self) -> int:
        """Return a size from a few KiB to a quarter of the device, large ones as often as small."""
        top = self.setting.capacity // 4
        size = int(4 * KIB * (top / (4 * KIB)) ** self.rng.random())
        return size // 512 * 512 if self.rng.random() < 0.7 else -(-size // (2 * MIB)) * 2 * MIB

    def add(self, name: str, where: str = "", /, **values: Any) -> None:
        self.program.ops.append(Op(name, where, values))

    def tag(self) -> int:
        self.last_tag += 1
        return self.last_tag

    # Order.

    def is_after(self, stream: int, other: int, instant: int) -> bool:
        """Whether what is submitted to `stream` now comes after that instant of another."""
        known = self.streams[stream].clock.get(other, 0)
        return stream == other or max(known, self.host.get(other, 0)) >= instant

    def submit(self, stream: int) -> int:
        """Count one more operation on a stream; return its instant."""
        found = self.streams[stream]
        found.instant += 1
        merge(found.clock, self.host)
        found.clock[stream] = found.instant
        return found.instant

    def join(self, later: int, earlier: int) -> None:
        """Let one stream wait for another, in one of the ways that there are."""
        way = self.rng.random()
        if way < 0.75 or self.capturing:
            self.add("wait_stream", later=later, earlier=earlier, event=way < 0.35)
            merge(self.streams[later].clock, self.clock_of(earlier))
        else:
            self.synchronize(earlier)

    def clock_of(self, stream: int) -> dict[int, int]:
        """Return what a stream's next operation comes after."""
        merge(self.streams[stream].clock, self.host)
        return self.streams[stream].clock

    def synchronize(self, stream: int | None = None) -> None:
        """Let the host wait for a stream, or for all."""
        self.add("synchronize", stream=stream)
        for each in [stream] if stream is not None else range(len(self.streams)):
            merge(self.host, self.clock_of(each))

    def order(self, tensor: Tensor, stream: int, *, writes: bool) -> None:
        """Let a stream come after all that its next operation on a tensor must come after."""
        before = [tensor.wrote, *(tensor.uses.items() if writes else ())]
        for other, instant in before:
            if not self.is_after(stream, other, instant):
                self.join(stream, other)

    def touch(self, tensor: Tensor, stream: int, *, writes: bool) -> None:
        instant = self.submit(stream)
        tensor.uses[stream] = instant
        if writes:
            tensor.wrote = (stream, instant)

    def pay(self, stream: int) -> None:
        """Let a stream wait for those that used what it freed, before it has memory again."""
        found = self.streams[stream]
        debts, found.debts = found.debts, {}
        for other, instant in debts.items():
            if not self.is_after(stream, other, instant):
                self.join(stream, other)

    # Choices.

    def usable(self, device: int | None = None, *, allocates: bool = False) -> list[Stream]:
        return [
            each
            for each in self.streams
            if each.alive
            and each.number != self.captured_on
            and device in (None, each.device)
            and not (allocates and each.silent)
        ]

    def pick_stream(self, device: int | None = None, *, allocates: bool = False) -> int:
        return self.rng.choice(self.usable(device, allocates=allocates)).number

    def live(self, device: int) -> int:
        """Return how much is allocated, in blocks."""
        return sum(
            -(-each.size // BLOCK_BYTES) * BLOCK_BYTES
            for each in self.tensors
            if self.streams[each.owner].device == device
        )

    def held(self, *, known: bool = False, empty: bool = False) -> list[Tensor]:
        """Return the tensors that can be used; known: those with a known content."""
        return [
            each
            for each in self.tensors
            if (each.size == 0) == empty and not (known and each.tag is None)
        ]

    # Steps. Each returns whether it could be taken.

    def make_stream(self) -> bool:
        """Make a stream, of PyTorch's pool or by CUDA's runtime."""
        number, device = len(self.streams), self.rng.randrange(self.setting.devices)
        kind = self.rng.choice(["pool", "pool", "priority", "raw", "blocking"])
        stream = Stream(number, device, kind in ("raw", "blocking"), self.rng.random() < 0.3)
        if len(self.streams) > 9:
            return False
        self.streams.append(stream)
        self.add("make_stream", stream=number, device=device, kind=kind)
        return True

    def destroy_stream(self) -> bool:
        """Destroy a stream of CUDA's runtime, once all that it did or freed is done."""
        found = [each for each in self.usable() if each.raw]
        if not found or not self.late:
            return False
        stream = self.rng.choice(found)
        if any(stream.number in each.recorded for each in self.tensors):
            return False
        for other in [*stream.debts, stream.number]:
            self.synchronize(other)
        stream.alive, stream.debts = False, {}
        self.add("destroy_stream", stream=stream.number)
        return True

    def alloc(self, size: int = 0, stream: int | None = None, **options: Any) -> Tensor | None:
        if stream is None:
            stream = self.pick_stream(allocates=True)
        device = self.streams[stream].device
        room = int(self.limits[device] * self.fullest) - self.live(device)
        if not size:
            size = self.rng.choice(self.sizes) if self.rng.random() < 0.8 else self._draw_size()
        if not options.pop("beyond", False) and size > room:
            return None
        self.pay(stream)
        tensor = Tensor(self.count, size, stream, (stream, self.submit(stream)), full=size)
        tensor.pool, tensor.region = options.get("pool", self.entered), options.get("region")
        self.count += 1
        self.tensors.append(tensor)
        self.add("alloc", tensor=tensor.number, size=size, stream=stream, **options)
        return tensor

    def alloc_rest(self) -> bool:
        """Ask for nearly all that is left: the device can just hold it, or just not."""
        stream = self.pick_stream(allocates=True)
        device = self.streams[stream].device
        rest = self.limits[device] - self.live(device)
        size = (rest - self.rng.choice([-64, 0, 0, 2, 4, 16, 64]) * MIB) // (2 * MIB) * 2 * MIB
        return size > 0 and self.alloc(size, stream, beyond=True) is not None

    def leave_idle(self) -> bool:
        """Allocate much and free it, so that much is idle."""
        return self.alloc_rest() and self.free(self.tensors[-1])

    def write(self, tensor: Tensor | None = None, stream: int | None = None) -> bool:
        """Set a tensor to a new tag or to zero."""
        tensor, stream = self._pair(tensor, stream)
        if tensor is None or stream is None:
            return False
        self.order(tensor, stream, writes=True)
        tensor.tag = self.tag() if self.rng.random() < 0.85 else 0
        self.add("write", tensor=tensor.number, stream=stream, tag=tensor.tag)
        self.touch(tensor, stream, writes=True)
        return True

    def read(self, tensor: Tensor | None = None, stream: int | None = None) -> bool:
        """Copy a tensor to the host; what came is compared once all is done."""
        tensor, stream = self._pair(tensor, stream, known=True)
        if tensor is None or stream is None:
            return False
        self.order(tensor, stream, writes=False)
        self.add("read", tensor=tensor.number, stream=stream, tag=tensor.tag)
        self.touch(tensor, stream, writes=False)
        return True

    def _pair(
        self, tensor: Tensor | None, stream: int | None, *, known: bool = False
    ) -> tuple[Tensor | None, int | None]:
        """Return a tensor and a stream that can use it."""
        found = self.held(known=known)
        if tensor is None and found:
            tensor = self.rng.choice(found)
        if tensor is not None and stream is None:
            own = self.streams[tensor.owner]
            free = own.alive and own.number != self.captured_on
            stays = free and self.rng.random() < 0.4
            stream = own.number if stays else self.pick_stream(own.device)
        return tensor, stream

    def copy(self) -> bool:
        """Copy between two tensors of one size, perhaps of two devices."""
        sources = self.held(known=True)
        if not sources:
            return False
        source = self.rng.choice(sources)
        targets = [each for each in self.held() if each.full == source.full and each is not source]
        if not targets:
            return False
        target = self.rng.choice(targets)
        devices = [self.streams[each.owner].device for each in (source, target)]
        by = [self.pick_stream(devices[0])]
        if devices[0] != devices[1]:  # PyTorch uses the current stream of both
            by.append(self.pick_stream(devices[1]))
        for stream in by:
            self.order(source, stream, writes=False)
            self.order(target, stream, writes=True)
        if len(by) == 2:
            self.join(by[0], by[1])
        self.add("copy", target=target.number, source=source.number, streams=by)
        for stream in by:
            self.touch(source, stream, writes=False)
            self.touch(target, stream, writes=True)
        if len(by) == 2:
            self.join(by[1], by[0])
            self.join(by[0], by[1])
        target.tag = source.tag
        return True

    def free(self, tensor: Tensor | None = None, way: str = "", *, empties: bool = False) -> bool:
        """Drop a tensor or empty its storage, in one of the ways that keep other users safe."""
        found = self.held(empty=self.rng.random() < 0.1)
        if tensor is None:
            found = [each for each in found if each.owner != self.captured_on]
            if not found:
                return False
            tensor = self.rng.choice(found)
        owner = self.streams[tensor.owner]
        others = {
            stream: instant
            for stream, instant in tensor.uses.items()
            if not self.is_after(owner.number, stream, instant)
        }
        way = way or self.rng.choice(["record", "wait", "late"])
        if not owner.alive:  # a stream made later may have its handle, and its memory
            for stream, instant in tensor.uses.items():
                if self.host.get(stream, 0) < instant:
                    self.synchronize(stream)
        elif way == "late" and self.late and tensor.graph is None:
            merge(owner.debts, others)
        else:
            for stream in others:
                if way == "record" and self.streams[stream].alive:
                    self.add("record_stream", tensor=tensor.number, stream=stream)
                    tensor.recorded.add(stream)
                else:
                    self.join(owner.number, stream)
        if empties:
            self.add("resize", tensor=tensor.number, size=0, stream=owner.number)
            tensor.size, tensor.tag, tensor.uses = 0, None, {}
            tensor.recorded.clear()
        else:
            self.tensors.remove(tensor)
            self.add("free", tensor=tensor.number)
        return True

    def empty_storage(self) -> bool:
        found = [each for each in self.held() if self._can_resize(each)]
        return bool(found) and self.free(self.rng.choice(found), empties=True)

    def squeeze(self) -> bool:
        """Refill a storage with all that is left, most of which was just used by others."""
        if not any(self._can_resize(each) for each in self.held(empty=True)):
            return False
        return self.leave_idle() and self.refill_storage(all_that_is_left=True)

    def refill_storage(self, *, all_that_is_left: bool = False) -> bool:
        """Resize an empty storage to what it was or more."""
        found = [each for each in self.held(empty=True) if self._can_resize(each)]
        if not found:
            return False
        tensor = self.rng.choice(found)
        stream = tensor.owner = self.pick_stream(self.streams[tensor.owner].device, allocates=True)
        device = self.streams[stream].device
        rest = (self.limits[device] - self.live(device)) // (2 * MIB) * 2 * MIB
        if tensor.full > rest * self.fullest:
            return False
        rest -= self.rng.choice([-64, -4, 0, 0, 2, 16, 64]) * MIB
        much = all_that_is_left or self.rng.random() < 0.3
        size = max(tensor.full, rest if much else 0)
        self.pay(stream)
        tensor.size, tensor.wrote = size, (stream, self.submit(stream))
        self.add("resize", tensor=tensor.number, size=size, stream=stream)
        return True

    def _can_resize(self, tensor: Tensor) -> bool:
        plain = (tensor.pool, tensor.graph, tensor.region) == (None, None, None)
        return plain and self.streams[tensor.owner].alive

    def wait(self) -> bool:
        """Let two streams be ordered without need."""
        later, earlier = self.pick_stream(), self.pick_stream()
        if later != earlier:
            self.join(later, earlier)
        return later != earlier

    def mark(self) -> bool:
        """Record an event that is heeded later, or heed one."""
        if self.events and self.rng.random() < 0.6:
            event, clock = self.events.pop(self.rng.randrange(len(self.events)))
            stream = self.pick_stream() if self.rng.random() < 0.7 else None
            self.add("heed", event=event, stream=stream)
            merge(self.host if stream is None else self.streams[stream].clock, clock)
            return True
        stream, event = self.pick_stream(), len(self.program.ops)
        self.add("mark", event=event, stream=stream)
        self.events.append((event, dict(self.clock_of(stream))))
        return True

    def sync(self) -> bool:
        self.synchronize(self.pick_stream() if self.rng.random() < 0.7 else None)
        return True

    def advance(self) -> bool:
        self.add("advance", stream=self.pick_stream(), count=self.rng.choice([1, 3, 10, 1000]))
        return True

    def pace(self) -> bool:
        word = self.rng.choice(["manual", "manual", "lag", "eager"])
        self.add("pace", word=word, lag=self.rng.choice([2, 8, 32, 200]))
        return True

    def empty_cache(self) -> bool:
        self.add("empty_cache")
        return True

    def offload(self) -> bool:
        """Copy out on a stream of its own, free, and let a third stream ask meanwhile."""
        if len(self.usable(0)) < 3:
            return False
        own = self.pick_stream(0, allocates=True)
        side = self.pick_stream(0)
        third = self.pick_stream(0, allocates=True)
        if len({own, side, third}) < 3:
            return False
        tensor = self.alloc(0, own)
        if tensor is None:
            return False
        self.write(tensor, own)
        self.read(tensor, side)
        self.free(tensor)
        fetched = self.alloc(tensor.full, third)
        if fetched is not None:
            self.write(fetched, third)
            self.add("advance", stream=third, count=1000)
        return True

    def take(self, steps: dict[str, float], count: int) -> None:
        """Take so many random steps, by their weights."""
        names, weights = list(steps), list(steps.values())
        for name in self.rng.choices(names, weights, k=count):
            step: Callable[[], Any] = getattr(self, name)
            step()

    def finish(self) -> Program:
        """Read all that is known, and wait."""
        for tensor in self.held(known=True):
            self.read(tensor)
        self.synchronize()
        return self.program
