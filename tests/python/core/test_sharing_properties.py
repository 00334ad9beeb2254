"""Streams that lend each other memory: what holds for every program, found by search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from gmlake import Lake, OutOfMemoryError

MIB = 1 << 20
CAPACITY = 160 * MIB
EVENT_CALLS = (
    "event_create",
    "event_destroy",
    "event_record",
    "event_query",
    "event_synchronize",
    "stream_wait",
)
NO_BORROWING: dict[str, Any] = {
    "reuse_follow_event_dependencies": 0,
    "reuse_allow_opportunistic": 0,
    "reuse_allow_internal_dependencies": 0,
}

streams = st.sampled_from([0, 1, 7, 8, 1 << 40])
sizes = st.one_of(
    st.integers(1, 4096),
    st.integers(1, MIB),
    st.sampled_from([2 * MIB, 3 * MIB, 8 * MIB, 20 * MIB]),
    st.integers(MIB, 24 * MIB),
)
borrowing = st.fixed_dictionaries(
    {},
    optional={
        "reuse_follow_event_dependencies": st.integers(0, 1),
        "reuse_allow_opportunistic": st.integers(0, 1),
        "reuse_allow_internal_dependencies": st.integers(0, 1),
        "borrow_waits": st.integers(0, 1024),
        "economy": st.sampled_from(["time", "balanced", "memory"]),
    },
)


class Step(NamedTuple):
    """Take `size` bytes on a stream, or give back the block taken as the `victim`-th."""

    size: int
    stream: int
    victim: int


steps = st.lists(
    st.builds(Step, st.one_of(st.just(0), sizes), streams, st.integers(0, 1 << 16)), max_size=60
)


def run(lake: Lake, program: list[Step]) -> list[int]:
    """Run a program; return what was reserved after each step, in bytes."""
    live = []
    reserved = []
    for step in program:
        if step.size:
            live.append(lake.allocate(step.size, step.stream))
        elif live:
            lake.free(live.pop(step.victim % len(live)))
        reserved.append(lake.stats()["reserved_bytes"])
    lake.check()
    for block in live:
        lake.free(block)
    lake.trim()
    assert lake.stats()["reserved_bytes"] == 0
    return reserved


@given(steps)
def test_borrowing_never_costs_memory(program: list[Step]) -> None:
    """The peak of what is reserved is never higher than without borrowing."""
    with Lake(check_order=True) as with_borrowing, Lake(**NO_BORROWING) as without:
        peak = max(run(with_borrowing, program), default=0)
        assert peak <= max(run(without, program), default=0)


@given(steps)
def test_one_stream_makes_no_event_call(program: list[Step]) -> None:
    """Whatever a program on one stream does."""
    with Lake(check_order=True) as lake:
        run(lake, [step._replace(stream=7) for step in program])
        calls = lake.stats()["driver_calls"]
        assert not any(calls[name] for name in EVENT_CALLS)
        assert lake.stream_pairs() == []


@given(steps, borrowing)
def test_a_repeated_program_comes_to_ask_for_nothing(
    program: list[Step], knobs: dict[str, Any]
) -> None:
    """What was reserved by its first runs suffices for those that come."""
    with Lake(check_order=True, **knobs) as lake:
        reserved = []
        for _ in range(6):
            live = [lake.allocate(step.size, step.stream) for step in program if step.size]
            reserved.append(lake.stats()["reserved_bytes"])
            for block in live:
                lake.free(block)
        assert reserved[-1] == reserved[-2]


class Lenders(RuleBasedStateMachine):
    """Blocks with contents on several streams, which come and go, under any setting."""

    blocks: Bundle[Any] = Bundle("blocks")

    @initialize(
        knobs=borrowing,
        policy=st.sampled_from(["stitch", "plan"]),
        chunk_size=st.sampled_from([0, 2 * MIB, 4 * MIB]),
    )
    def open(self, knobs: dict[str, Any], policy: str, chunk_size: int) -> None:
        """Open a lake with bytes whose hand-overs are checked."""
        self.lake = Lake("host", policy, CAPACITY, check_order=True, chunk_size=chunk_size, **knobs)
        self.live = 0

    def teardown(self) -> None:
        """Close the lake, which gives everything back."""
        self.lake.close()

    @rule(target=blocks, size=sizes, stream=streams, mark=st.integers(1, 255))
    def take(self, size: int, stream: int, mark: int) -> Any:
        """Take a block and mark both its ends."""
        try:
            block = self.lake.allocate(size, stream)
        except OutOfMemoryError:
            return multiple()
        data = np.frombuffer(memoryview(block), np.uint8)
        data[0] = data[-1] = mark
        self.live += size
        return block, mark

    @rule(taken=consumes(blocks))
    def give(self, taken: Any) -> None:
        """Find both marks, then give the block back."""
        block, mark = taken
        data = np.frombuffer(memoryview(block), np.uint8)
        assert data[0] == data[-1] == mark
        self.live -= block.size
        del data
        self.lake.free(block)

    @rule(taken=blocks, stream=streams)
    def record(self, taken: Any, stream: int) -> None:
        """Another stream uses a block."""
        self.lake.record_stream(taken[0], stream)

    @rule(stream=streams)
    def forget(self, stream: int) -> None:
        """A stream is destroyed; another may come with its handle."""
        self.lake.forget_stream(stream)

    @rule(stream=streams)
    def distrust(self, stream: int) -> None:
        """A stream is not to be called."""
        self.lake.distrust_stream(stream)

    @rule()
    def trim(self) -> None:
        """Give back what is idle."""
        self.lake.trim()

    @rule()
    def mark(self) -> None:
        """Begin another step."""
        self.lake.mark()

    @rule(limit=st.sampled_from([0, 40 * MIB, 80 * MIB]))
    def limit(self, limit: int) -> None:
        """Hold less from now on, or what the capacity allows."""
        self.lake.set_limit(limit)

    @invariant()
    def counts(self) -> None:
        """The structures are sound and the counters agree with each other."""
        self.lake.check()
        stats = self.lake.stats()
        pairs = self.lake.stream_pairs()
        assert self.live <= stats["reserved_bytes"] <= CAPACITY
        assert sum(pair["borrowed_bytes"] for pair in pairs) <= stats["borrowed_bytes"]
        assert sum(pair["waits"] for pair in pairs) <= stats["cross_stream_waits"]


TestLenders = Lenders.TestCase
TestLenders.settings = settings(stateful_step_count=60)
