"""The steps that need more than tensors and streams: graphs, pools, history, what gmlake has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.standin.differential.programs import MIB, Builder, Graph, Program, Tensor

if TYPE_CHECKING:
    import random

BASIC: Final = {
    "alloc": 8.0, "write": 6.0, "copy": 3.0, "read": 5.0, "free": 6.0, "wait": 1.0, "mark": 1.0,
    "sync": 0.6, "advance": 3.0, "pace": 0.5, "empty_cache": 0.4, "make_stream": 1.5,
    "destroy_stream": 0.5,
}  # fmt: skip
LARGEST_CAPTURED: Final = 64 * MIB
KEPT_FREE: Final = 512 * MIB


class Steps(Builder):
    """The steps that need more than tensors and streams."""

    def __init__(self, program: Program, rng: random.Random) -> None:
        super().__init__(program, rng)
        self.enabled = self.recording = False
        self.pools: list[int] = []
        self.made_pools = 0
        self.asleep: set[str] = set()
        self.regions: dict[str, str | None] = {}
        self.captured = 0
        self.caches: dict[int, str | None] = {}
        self.made_caches = 0
        self.theirs: dict[int, Tensor] = {}

    # gmlake itself; under PyTorch alone these do nothing.

    def switch(self) -> bool:
        """Turn gmlake on or off."""
        self.enabled = not self.enabled
        self.add("enable" if self.enabled else "disable")
        return True

    def enable(self) -> bool:
        self.enabled = True
        self.add("enable")
        return True

    # Limits.

    def limit(self) -> bool:
        """Set the memory fraction of a device."""
        device = self.rng.randrange(self.setting.devices)
        fraction = self.rng.choice([0.25, 0.5, 0.5, 0.75, 1.0])
        self.add("limit", device=device, fraction=fraction)
        whole = self.setting.capacity - 8 * MIB
        self.limits[device] = min(whole, int(self.setting.capacity * fraction))
        return True

    # Graphs.

    def capture(self, where: str = "") -> bool:
        """Capture copies between static tensors, temporaries and results."""
        streams = [each for each in self.usable(0) if each.number and not each.raw]
        if not streams or len(self.graphs) > 4:
            return False
        stream = self.rng.choice(streams).number
        fits = [
            each
            for each in self.held()
            if each.size <= LARGEST_CAPTURED and each.graph is None and each.region is None
        ]
        inputs = self.rng.sample(fits, min(len(fits), 2))
        while len(inputs) < 2:
            made = self.alloc(self.rng.choice([64 * 1024, MIB, 5 * MIB, 20 * MIB]), stream)
            if made is None or not self.write(made):
                return False
            inputs.append(made)
        self.synchronize()
        self.add("empty_cache")
        shared = [each for each in self.graphs if self.rng.random() < 0.5]
        graph = Graph(self.captured, shared[0].pool if shared else self.captured, inputs)
        self.captured += 1
        self.capturing, self.captured_on = True, stream
        mode = "thread_local" if where else self.rng.choice(["global", "thread_local", "relaxed"])
        self.add(
            "capture_begin", where, graph=graph.number, pool=graph.pool, stream=stream, mode=mode
        )
        body = self._body(graph, stream, where)
        for _ in body:
            if where or self.rng.random() < 0.05:
                self._meanwhile(where)
        self.add("capture_end", where, graph=graph.number, stream=stream)
        self.capturing, self.captured_on = False, None
        graph.last = (stream, self.submit(stream))
        self.graphs.append(graph)
        return True

    def _meanwhile(self, where: str) -> None:
        """Do something on this thread while a graph is captured."""
        if self.rng.random() < 0.3:
            self.switch()
        if not where:
            return
        for _ in range(self.rng.randint(0, 3)):
            step: Any = self.rng.choice([self._small, self.write, self.free, self.advance])
            step()

    def _small(self) -> bool:
        streams = [each.number for each in self.usable(0, allocates=True)]
        stream = self.rng.choice(streams)
        made = self.alloc(self.rng.choice([64 * 1024, MIB, 5 * MIB, 20 * MIB]), stream)
        return made is not None and self.write(made)

    def _body(self, graph: Graph, stream: int, where: str) -> Any:
        """Append what is captured; yield between two steps."""
        alive: list[tuple[int, int]] = [(each.number, each.size) for each in graph.inputs]
        made: list[tuple[int, int]] = []
        for _ in range(self.rng.randint(2, 5)):
            source, size = self.rng.choice(alive)
            target, self.count = self.count, self.count + 1
            self.add("alloc", where, tensor=target, size=size, stream=stream, graph=graph.number)
            self.add("copy", where, target=target, source=source, streams=[stream])
            graph.steps.append((target, source))
            alive.append((target, size))
            made.append((target, size))
            yield
            if len(made) > 1 and self.rng.random() < 0.5:
                gone = made.pop(self.rng.randrange(len(made) - 1))
                alive.remove(gone)
                self.add("free", where, tensor=gone[0])
                yield
        into = self.rng.choice(graph.inputs)
        same = [number for number, size in alive if size == into.size and number != into.number]
        if same and self.rng.random() < 0.5:
            source = self.rng.choice(same)
            self.add("copy", where, target=into.number, source=source, streams=[stream])
            graph.steps.append((into.number, source))
        for number, size in made:
            kept = Tensor(number, size, stream, (stream, self.submit(stream)), full=size)
            kept.graph = graph.number
            graph.outputs.append(kept)
            self.tensors.append(kept)

    def capture_elsewhere(self) -> bool:
        return self.capture("t")

    def replay(self) -> bool:
        """Replay a graph whose tensors all live."""
        ready = [
            each
            for each in self.graphs
            if all(one in self.tensors and one.size for one in [*each.inputs, *each.outputs])
        ]
        if not ready:
            return False
        graph = self.rng.choice(ready)
        stream = self.pick_stream(0)
        later = [
            one
            for each in self.graphs
            if each.pool == graph.pool and each.number > graph.number
            for one in each.outputs
            if one in self.tensors
        ]
        touched = [*graph.inputs, *graph.outputs, *later]
        for tensor in touched:
            self.order(tensor, stream, writes=True)
        for other in self.graphs:
            last = other.last
            if other.pool == graph.pool and last and not self.is_after(stream, *last):
                self.join(stream, last[0])
        self.add("replay", graph=graph.number, stream=stream)
        tags = {each.number: each.tag for each in [*graph.inputs, *graph.outputs]}
        for target, source in graph.steps:
            tags[target] = tags[source] if source is not None else None
        for tensor in touched:
            self.touch(tensor, stream, writes=True)
            tensor.tag = tags.get(tensor.number)
        graph.last = (stream, self.streams[stream].instant)
        return True

    def drop_graph(self) -> bool:
        """Destroy a graph; its results stay."""
        if not self.graphs:
            return False
        graph = self.graphs.pop(self.rng.randrange(len(self.graphs)))
        self.synchronize()
        self.add("drop_graph", graph=graph.number)
        return True

    def look_at_pools(self) -> bool:
        """Check in which pool each tensor lies."""
        self.add("look_at_pools")
        return True

    # Pools.

    def make_pool(self) -> bool:
        self.pools.append(self.made_pools)
        self.add("make_pool", pool=self.made_pools)
        self.made_pools += 1
        return True

    def alloc_in_pool(self) -> bool:
        if not self.pools or self.entered is not None:
            return False
        return self.alloc(0, pool=self.rng.choice(self.pools)) is not None

    def in_pool(self) -> bool:
        """Take some steps within use_mem_pool, perhaps turning gmlake on or off among them."""
        if not self.pools or self.entered is not None:
            return False
        self.entered = self.rng.choice(self.pools)
        self.add("enter_pool", pool=self.entered)
        self.take({"alloc": 4, "write": 3, "free": 1, "switch": 2}, self.rng.randint(2, 8))
        self.add("leave_pool")
        self.entered = None
        return True

    def drop_pool(self) -> bool:
        idle = [one for one in self.pools if all(each.pool != one for each in self.tensors)]
        if not idle or self.entered is not None:
            return False
        pool = self.rng.choice(idle)
        self.pools.remove(pool)
        self.synchronize()
        self.add("drop_pool", pool=pool)
        return True

    # History.

    def record(self) -> bool:
        """Begin or end PyTorch's history of memory."""
        self.recording = not self.recording
        self.add("record" if self.recording else "record_no_more")
        return True

    def look(self) -> bool:
        """Compare what the history told with the snapshot and the driver's calls."""
        if self.recording:
            self.add("look")
        return self.recording

    # Regions.

    def alloc_in_region(self) -> bool:
        """Allocate a small tensor that sleeps with others."""
        name = self.rng.choice("vw")
        if name in self.asleep or sum(1 for each in self.tensors if each.region) > 6:
            return False
        backup = self.regions.setdefault(name, self.rng.choice(["cpu", "cpu", None]))
        size = self.rng.choice([8 * 1024, 700 * 1024, 2 * MIB, 5 * MIB, 12 * MIB])
        stream = self.pick_stream(0, allocates=True)
        made = self.alloc(size, stream, region=name, backup=backup)
        return made is not None and self.write(made)

    def sleep_and_wake(self) -> bool:
        """Let a region sleep, others work, and wake it."""
        names = {each.region for each in self.tensors if each.region} - self.asleep
        if not names or not self.enabled:
            return False
        name = self.rng.choice(sorted(names))
        self.synchronize()
        self.add("sleep", region=name)
        aside = [each for each in self.tensors if each.region == name]
        self.tensors = [each for each in self.tensors if each.region != name]
        self.asleep.add(name)
        small = {key: value for key, value in BASIC.items() if key != "destroy_stream"}
        self.take(small, self.rng.randint(0, 8))
        self.take({"look": 1}, 1)
        self.add("wake", region=name)
        self.asleep.discard(name)
        self.tensors += aside
        for tensor in aside:
            tensor.tag = tensor.tag if self.regions[name] else None
        return True

    # What only gmlake has.

    def make_elastic(self) -> bool:
        """Reserve addresses for a tensor that grows, perhaps in a region."""
        if len(self.caches) > 2:
            return False
        region = self.rng.choice([None, None, "e"]) if not self.setting.neighbour else None
        region = region if self.rng.random() < 0.8 else "e"
        if region and (region in self.asleep or region in self.caches.values()):
            return False
        if region:
            self.regions.setdefault(region, self.rng.choice(["cpu", "cpu", None]))
        backup = self.regions.get(region) if region else None
        number = self.made_caches
        self.made_caches += 1
        self.caches[number] = region
        stream = self.rng.choice([each.number for each in self.usable(0) if not each.raw])
        self.add("elastic", cache=number, stream=stream, region=region, backup=backup)
        self.resize_rows(number)
        return True

    def _cache(self) -> int | None:
        awake = [number for number, region in self.caches.items() if region not in self.asleep]
        return self.rng.choice(awake) if awake else None

    def resize_rows(self, number: int | None = None) -> bool:
        """Grow or shrink an elastic tensor."""
        number = self._cache() if number is None else number
        if number is None:
            return False
        device = self.setting.capacity // MIB
        top = 128 if self.caches[number] else device
        rows = int(top * self.rng.choice([0.02, 0.1, 0.3, 0.6, 0.9]) * self.rng.random())
        self.add("rows", cache=number, rows=rows)
        if self.rng.random() < 0.7:
            self.write_rows(number)
        return True

    def fill(self) -> bool:
        """Let an elastic tensor take what is left, and give way from then on."""
        number = self._cache()
        if number is None or self.caches[number]:
            return False
        keep = self.rng.choice([0, 0, 8, 64])
        self.add("fill", cache=number, keep=keep, leave=self.rng.choice([0, 64, 256]) * MIB)
        return self.write_rows(number)

    def write_rows(self, number: int | None = None) -> bool:
        """Write some of the rows that an elastic tensor has."""
        number = self._cache() if number is None else number
        if number is None:
            return False
        first = self.rng.choice([0, 0, 30, 60])
        last = self.rng.choice([100, 100, first + 40])
        self.add("write_rows", cache=number, first=first, last=last, tag=self.tag())
        return True

    def read_rows(self) -> bool:
        number = self._cache()
        if number is None:
            return False
        self.add("read_rows", cache=number, stream=self.pick_stream(0))
        return True

    def close_elastic(self) -> bool:
        number = self._cache()
        if number is None:
            return False
        del self.caches[number]
        self.add("close", cache=number)
        return True

    def sleep_elastic(self) -> bool:
        """Let the region of an elastic tensor sleep meanwhile."""
        found = [number for number, region in self.caches.items() if region]
        if not found or self.asleep:
            return False
        self.synchronize()
        self.add("sleep", region="e")
        self.asleep.add("e")
        self.take({"alloc": 2, "write": 2, "free": 2, "resize_rows": 1}, self.rng.randint(0, 6))
        self.add("wake", region="e")
        self.asleep.discard("e")
        if not self.regions["e"]:
            for number in found:
                self.add("forget_rows", cache=number)
        return True

    def both(self) -> bool:
        """Let two threads ask at the same time where an elastic tensor gives way."""
        number = self._cache()
        if number is None or self.caches[number]:
            return False
        self.add("fill", cache=number, keep=0, leave=0)
        self.add("both", cache=number, size=self.rng.choice([40, 200]) * MIB, rounds=6)
        return True

    def neighbour_takes(self) -> bool:
        """Let the neighbour allocate and write."""
        sizes = [each.size for each in self.theirs.values()]
        top = self.setting.capacity - 2 * KEPT_FREE
        rest = top - sum(sizes) - self.live(0)
        size = int(self.rng.random() * max(rest, 0)) // MIB * MIB
        if not size or len(sizes) > 5:
            return False
        made = Tensor(self.count, size, 0, (0, 0), tag=self.tag(), full=size)
        self.theirs[self.count] = made
        self.count += 1
        self._settle()
        self.look()  # so that little else is told until the next
        self.add("alloc", "n", tensor=made.number, size=size, stream=0)
        self.add("write", "n", tensor=made.number, stream=0, tag=made.tag)
        self.look()
        return True

    def hand_over(self) -> bool:
        """Leave much idle here, and let the neighbour need it."""
        made = self.alloc(self.setting.capacity // 3 // MIB * MIB, 0)
        if made is None:
            return False
        self.write(made, 0)
        self.free(made, "wait")
        self.synchronize()
        return self.neighbour_takes()

    def _settle(self) -> None:
        """End the work of this process: memory that queued work may use is given late."""
        if self.rng.random() < 0.95:
            self.synchronize()

    def neighbour_reads(self) -> bool:
        """Let the neighbour read what it has."""
        for each in self.theirs.values():
            self.add("read", "n", tensor=each.number, stream=0, tag=each.tag)
        return True

    def neighbour_drops(self) -> bool:
        """Let the neighbour free a tensor, perhaps to the device."""
        if not self.theirs:
            return False
        number = self.rng.choice(sorted(self.theirs))
        self.add("read", "n", tensor=number, stream=0, tag=self.theirs.pop(number).tag)
        self.add("free", "n", tensor=number)
        if self.rng.random() < 0.5:
            self.add("empty_cache", "n")
        return True

    def neighbour_grows(self) -> bool:
        """Let the neighbour's elastic tensor grow, shrink, or take what is left."""
        self._settle()
        if self.rng.random() < 0.7:
            rows = int(self.setting.capacity // MIB * 0.5 * self.rng.random())
            self.add("rows", "n", cache=0, rows=rows)
        else:
            self.add("fill", "n", cache=0, keep=self.rng.choice([0, 64]), leave=0)
        self.add("write_rows", "n", cache=0, first=0, last=100, tag=self.tag())
        self.add("read_rows", "n", cache=0, stream=0)
        return True
