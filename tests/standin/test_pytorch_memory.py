"""What PyTorch's own tests of its memory ask for, where it needs no kernel, in our words.

Here it is asked of PyTorch itself. `test_pytorch_full.py` and `test_pytorch_pool.py` run this file
once more in processes that gmlake serves, and say what cannot hold there, and why. What concerns
graphs and pools is in `test_pytorch_graphs.py` and `test_pytorch_mempool.py`.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: S311, SLF001

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import tiling_faults
from torch.cuda._memory_viz import segment_plot, segsum, trace_plot
from torch.utils.viz._cycles import observe_tensor_cycles

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
GIB = 1 << 30
C: Any = torch._C
record_history: Any = torch.cuda.memory._record_memory_history
# A setting that is left out begins anew, all but these.
USUAL = "expandable_segments:False,graph_capture_record_stream_reuse:False"


def block(size_bytes: int, device: str = "cuda") -> torch.Tensor:
    """Return a tensor of so many bytes."""
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)


def stat(name: str, device: int = 0) -> int:
    return int(torch.cuda.memory_stats(device)[name])


def all_segments() -> list[dict[str, Any]]:
    """Return what memory_snapshot() does, which in 2.11 lets go of numbers that it does not own."""
    found: list[dict[str, Any]] = torch.cuda.memory._snapshot()["segments"]
    return found


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))


@contextmanager
def at_most(size_bytes: int) -> Iterator[None]:
    """Allow so much in addition to what PyTorch holds."""
    total_bytes = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    allowed_bytes = torch.cuda.memory_reserved() + size_bytes
    torch.cuda.set_per_process_memory_fraction(allowed_bytes / total_bytes)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.fixture(autouse=True)
def _begins_empty() -> Iterator[None]:
    """Start each test with counters that begin, and end it without a history or settings."""
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    for device in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(device)
    yield
    C._accelerator_setAllocatorSettings(USUAL)
    torch.cuda.memory._set_memory_metadata("")
    record_history(None)


# ---- statistics


def test_a_raw_request_is_counted() -> None:
    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(1)
    during = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_delete(address)
    assert during == before + 512
    assert torch.cuda.memory_allocated() == before


def test_a_raw_request_is_recorded_as_it_was_made() -> None:
    stream = torch.cuda.current_stream().cuda_stream
    torch.cuda.reset_accumulated_memory_stats()
    address = C._cuda_cudaCachingAllocator_raw_alloc(MIB + 1, stream)
    requested = stat("requested_bytes.all.allocated")
    C._cuda_cudaCachingAllocator_raw_delete(address)
    assert requested == MIB + 1
    assert stat("requested_bytes.all.freed") == MIB + 1


def test_without_caching_nothing_is_counted() -> None:
    stream = torch.cuda.current_stream().cuda_stream
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.caching_allocator_enable(False)  # noqa: FBT003
    try:
        address = C._cuda_cudaCachingAllocator_raw_alloc(MIB, stream)
        C._cuda_cudaCachingAllocator_raw_delete(address)
    finally:
        torch.cuda.caching_allocator_enable(True)  # noqa: FBT003
    assert stat("requested_bytes.all.allocated") == 0


def test_one_tensor_comes_and_goes_in_the_statistics() -> None:
    twin = torch.accelerator
    twin.reset_accumulated_memory_stats()
    twin.reset_peak_memory_stats()
    allocated, reserved = twin.memory_allocated(), twin.memory_reserved()
    assert [twin.max_memory_allocated(), twin.max_memory_reserved()] == [allocated, reserved]
    active = twin.memory_stats()["active_bytes.all.current"]
    tensor = torch.empty(256, device="cuda")
    assert twin.memory_stats()["active_bytes.all.current"] == active + 1024
    assert twin.memory_stats()["active_bytes.all.freed"] == 0
    del tensor
    twin.empty_cache()
    assert twin.memory_stats()["active_bytes.all.current"] == active
    assert twin.memory_stats()["active_bytes.all.freed"] == 1024
    assert twin.max_memory_allocated() == allocated + 1024
    twin.reset_peak_memory_stats()
    assert [twin.max_memory_allocated(), twin.max_memory_reserved()] == [allocated, reserved]


def sums_by_pool(device: int) -> Counter[str]:
    """Add up the snapshot under the names of the statistics, for all and for either size."""
    total: Counter[str] = Counter()
    for segment in all_segments():
        if segment["device"] != device:
            continue
        for pool in ("all", segment["segment_type"] + "_pool"):
            total[f"allocated_bytes.{pool}.current"] += segment["allocated_size"]
            total[f"active_bytes.{pool}.current"] += segment["active_size"]
            total[f"requested_bytes.{pool}.current"] += segment["requested_size"]
            total[f"reserved_bytes.{pool}.current"] += segment["total_size"]
            states = Counter(part["state"] for part in segment["blocks"])
            total[f"allocation.{pool}.current"] += states["active_allocated"]
            total[f"active.{pool}.current"] += states.total() - states["inactive"]
        active = (part for part in segment["blocks"] if part["state"] != "inactive")
        requested = sum(part["requested_size"] for part in active)
        assert requested == segment["requested_size"]
    return total


def check_snapshot(device: int) -> None:
    """Compare the snapshot with the statistics."""
    found = sums_by_pool(device)
    stats = torch.cuda.memory_stats(device)
    assert found == {name: stats[name] for name in found}
    assert tiling_faults(all_segments()) == []


class Walk:
    """A program that allocates and frees, and what the statistics must say at each step."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.seen = self.figures()

    def figures(self) -> tuple[int, ...]:
        """Return what is allocated and reserved, each now and at most."""
        device = self.device
        return (
            torch.cuda.memory_allocated(device),
            torch.cuda.max_memory_allocated(device),
            torch.cuda.memory_reserved(device),
            torch.cuda.max_memory_reserved(device),
        )

    def expect(self, change: int) -> None:
        """Check that more, as much, or less is allocated than at the last call: 1, 0, -1."""
        before, (now, most, reserved, most_reserved) = self.seen, self.figures()
        assert (now > before[0]) - (now < before[0]) == change
        assert now <= most
        assert now <= reserved <= most_reserved
        assert most >= before[1]
        assert most_reserved >= before[3]
        self.seen = self.figures()

    def reset(self) -> None:
        """Let the peaks begin again."""
        torch.cuda.reset_peak_memory_stats(self.device)
        now, most, reserved, most_reserved = self.seen = self.figures()
        assert (most, most_reserved) == (now, reserved)

    def empty(self) -> None:
        """Give back what is idle; what is allocated and the peaks stay."""
        before = self.seen
        calls = self.device_calls()
        torch.cuda.empty_cache()
        now, most, reserved, most_reserved = self.seen = self.figures()
        assert (now, most, most_reserved) == (before[0], before[1], before[3])
        assert reserved <= before[2]
        assert all(map(int.__ge__, self.device_calls(), calls))
        assert self.device_calls()[0] >= (1 if now else 0)

    def device_calls(self) -> tuple[int, int]:
        """Return how often memory was taken from the device and given back."""
        stats = torch.cuda.memory_stats(self.device)
        return stats["num_device_alloc"], stats["num_device_free"]

    def alloc(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, device=f"cuda:{self.device}")

    def steps(self) -> Iterator[None]:
        """Go on by one step at a time."""
        self.expect(0)
        self.reset()
        self.empty()
        yield
        at_start = self.seen[0]
        first = [self.alloc(1), self.alloc(10, 20), self.alloc(200, 300, 2000)]
        self.expect(1)
        yield
        with_first = self.seen[0]
        tensors = []
        for i in range(1, 18):
            tensors.append(self.alloc(i, 4 * i))
            self.expect(1)
            yield
        for i in range(5, 22):
            tensors.append(self.alloc(i, 7 * i, 9 * i, 11 * i))
            self.expect(1)
            if i % 2 == 0:
                self.reset()
            yield
        tensors.append(self.alloc(0, 0, 0))
        self.expect(0)
        yield
        random.Random(0).shuffle(tensors)
        self.expect(0)
        for _ in range(17):
            is_empty = tensors[-1].numel() == 0
            del tensors[-1]
            self.expect(0 if is_empty else -1)
            yield
        for i in range(2, 25):
            tensors.append(self.alloc(i, 3 * i, 8 * i))
            self.expect(1)
            yield
        del tensors
        self.expect(-1)
        self.reset()
        assert self.seen[0] == with_first
        yield
        del first
        self.expect(-1)
        assert self.seen[0] == at_start
        self.empty()
        self.reset()


@pytest.mark.parametrize("device", [0, 1])
def test_statistics_follow_a_program_step_by_step(device: int) -> None:
    for _ in Walk(device).steps():
        check_snapshot(device)


def test_statistics_of_two_devices_do_not_mix() -> None:
    chance = random.Random(0)
    walks = [Walk(0).steps(), Walk(1).steps()]
    while walks:
        walk = chance.choice(walks)
        if next(walk, "end") == "end":
            walks.remove(walk)


def test_the_pieces_of_segments_are_counted() -> None:
    held = [block(size) for size in (100, 5000, 3 * MIB, 12 * MIB, MIB) * 3][::2]
    segments = all_segments()
    assert stat("segment.all.current") == len(segments)
    pieces = [part for found in segments if len(found["blocks"]) > 1 for part in found["blocks"]]
    idle = [part["size"] for part in pieces if part["state"] == "inactive"]
    assert stat("inactive_split.all.current") == len(idle)
    assert stat("inactive_split_bytes.all.current") == sum(idle)
    assert len(held) == stat("allocation.all.current")


def test_emptying_the_cache_waits_once() -> None:
    block(30 * MIB)
    before = stat("num_sync_all_streams")
    torch.cuda.empty_cache()
    assert stat("num_sync_all_streams") == before + 1


def test_a_leak_shows_where_it_is() -> None:
    allocated = [torch.cuda.memory_allocated(device) for device in (0, 1)]
    free = [torch.cuda.mem_get_info(device)[0] for device in (0, 1)]
    leak = block(40 * MIB, "cuda:1")
    assert torch.cuda.memory_allocated(0) == allocated[0]
    assert torch.cuda.memory_allocated(1) == allocated[1] + leak.nbytes
    assert torch.cuda.mem_get_info(0)[0] == free[0]
    assert free[1] - leak.nbytes >= torch.cuda.mem_get_info(1)[0] >= free[1] - 2 * leak.nbytes


def test_memory_of_the_host_has_statistics_of_its_own() -> None:
    torch._C._host_emptyCache()
    torch.cuda.reset_accumulated_host_memory_stats()
    torch.cuda.reset_peak_host_memory_stats()
    allocated = torch.cuda.memory_allocated()
    before = torch.cuda.host_memory_stats()  # other tests may have left something
    pinned = torch.empty(10 * 1024, pin_memory=True)
    stats = torch.cuda.host_memory_stats()
    assert pinned.is_pinned()
    assert stats["active_requests.current"] - before["active_requests.current"] == 1
    assert stats["active_requests.allocated"] == 1
    rounded = 1 << 16  # as the host's allocator rounds
    assert stats["active_bytes.current"] - before["active_bytes.current"] == rounded
    assert torch.cuda.memory_allocated() == allocated


# ---- settings of a running program


def test_a_setting_that_is_not_there_is_refused() -> None:
    for text in (
        *("foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2"),
        *("release_lock_on_cudamalloc:none", "pinned_num_register_threads:1024"),
    ):
        with pytest.raises(ValueError, match=r"(?i)config|invalid|should|expected|must|too|unrec"):
            C._accelerator_setAllocatorSettings(text)


def test_sizes_are_rounded_as_a_setting_says() -> None:
    size_bytes = 84 * MIB
    for text, rounded in (
        ("", 84),
        ("roundup_power2_divisions:4", 96),
        ("garbage_collection_threshold:0.5,roundup_power2_divisions:[64:8,128:2,>:1]", 88),
    ):
        C._accelerator_setAllocatorSettings(text)
        before = torch.cuda.memory_allocated()
        held = block(size_bytes)
        assert torch.cuda.memory_allocated() - before == rounded * MIB
        del held


def test_the_allocator_cannot_be_replaced_any_more() -> None:
    known = torch.cuda.memory._get_current_allocator()
    backend = torch.cuda.get_allocator_backend()
    with pytest.raises(RuntimeError, match="initialized"):
        torch.cuda.memory.change_current_allocator(known)
    assert torch.cuda.get_allocator_backend() == backend


# ---- the end of memory


@pytest.mark.parametrize("gib", [800_000_000, 8_000_000_000])
def test_what_no_device_has_is_out_of_memory(gib: int) -> None:
    tensor = torch.zeros(1024, device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allocate "):
        block(gib * GIB)
    tensor.fill_(1)
    torch.cuda.synchronize()


@pytest.mark.parametrize("settings", ["", "max_split_size_mb:1024"])
def test_running_out_tells_the_size_and_the_device(settings: str) -> None:
    C._accelerator_setAllocatorSettings(settings)
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        torch.empty(1 << 40, device="cuda")
    text = str(caught.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 4096.00 GiB. GPU 0 has a total ")


def test_memory_is_there_again_once_it_is_freed() -> None:
    size_bytes = int(torch.cuda.get_device_properties(0).total_memory * 0.6)
    first = block(size_bytes)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        block(size_bytes)
    del first
    assert block(size_bytes).nbytes == size_bytes


def test_memory_cached_in_other_sizes_is_there_again() -> None:
    with at_most(120 * MIB):
        held = []
        for kind in ("False", "True", "False"):
            C._accelerator_setAllocatorSettings(f"expandable_segments:{kind},max_split_size_mb:40")
            held.append(block(40 * MIB))
        with pytest.raises(torch.OutOfMemoryError):
            block(40 * MIB)
        held.clear()
        assert block(120 * MIB).nbytes == 120 * MIB


def test_an_observer_is_told_of_the_end() -> None:
    told = []
    C._cuda_attach_out_of_memory_observer(lambda *figures: told.append(figures))
    with pytest.raises(torch.OutOfMemoryError):
        block(1 << 42)
    assert len(told) == 1


def test_a_fraction_of_the_device_is_all_that_is_served() -> None:
    held = torch.zeros(1024, device="cuda")
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction(0.5, 0)
        allowed = block(int(total_bytes * 0.499) - torch.cuda.max_memory_reserved())
        del allowed
        torch.cuda.empty_cache()
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            block(int(total_bytes * 0.5))
        held.fill_(1)
        assert block(int(total_bytes * 0.6), "cuda:1").device.index == 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert block(int(total_bytes * 0.6)).numel() > 0


def test_a_fraction_is_what_was_set() -> None:
    before = torch.cuda.get_per_process_memory_fraction()
    try:
        for fraction in (1.0, 0.0, 0.25, 0.7109375):
            torch.cuda.set_per_process_memory_fraction(fraction)
            assert torch.cuda.get_per_process_memory_fraction() == fraction
        for wrong in (-0.1, 2.0):
            with pytest.raises(ValueError, match="Invalid fraction value"):
                torch.cuda.set_per_process_memory_fraction(wrong)
        with pytest.raises(TypeError, match="Invalid type"):
            torch.cuda.set_per_process_memory_fraction(1)
        assert torch.cuda.get_per_process_memory_fraction() == fraction
    finally:
        torch.cuda.set_per_process_memory_fraction(before)


# ---- streams


def test_memory_lent_to_a_stream_is_not_used_before_it_is_done() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(8 * MIB)
        address = lent.data_ptr()
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        meanwhile = block(8 * MIB)
        assert not address <= meanwhile.data_ptr() < address + 8 * MIB
        advance_all(side)
        assert block(8 * MIB).data_ptr() == address


def test_a_view_that_begins_later_lends_all_of_its_memory() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(2 * MIB)
        address = lent.data_ptr()
        view = lent[512 * 1024 :]
        with torch.cuda.stream(side):
            view.add_(1)
        view.record_stream(side)
        del lent, view
        meanwhile = block(2 * MIB)
        assert not address <= meanwhile.data_ptr() < address + 2 * MIB
        advance_all(side)


def test_lending_nothing_does_nothing() -> None:
    torch.empty(0, device="cuda").record_stream(torch.cuda.Stream())
    assert stat("active.all.current") == 0


def test_memory_that_other_streams_hold_up_is_waited_for() -> None:
    side = torch.cuda.Stream()
    ooms = stat("num_ooms")
    with at_most(400 * MIB), control.paced("manual"):
        for _ in range(50):
            part = block(40 * MIB)
            with torch.cuda.stream(side):
                part.add_(1)
            part.record_stream(side)
            del part
    assert stat("num_ooms") == ooms
    torch.cuda.synchronize()


def test_no_two_tensors_overlap_whatever_comes_and_goes() -> None:
    chance = random.Random(123)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    live: dict[int, torch.Tensor] = {}
    total_bytes = 0

    def alloc() -> None:
        nonlocal total_bytes
        with torch.cuda.stream(chance.choice(streams)):
            tensor = block(chance.choice((700, 90_000, 2 * MIB, 20 * MIB)) + chance.randrange(MIB))
        begin = tensor.data_ptr()
        before = max((address for address in live if address <= begin), default=None)
        after = min((address for address in live if address > begin), default=None)
        assert before is None or before + live[before].nbytes <= begin
        assert after is None or begin + tensor.nbytes <= after
        live[begin] = tensor
        total_bytes += tensor.nbytes

    def free() -> None:
        nonlocal total_bytes
        if live:
            total_bytes -= live.pop(chance.choice(list(live))).nbytes

    for _ in range(2000):
        while total_bytes > 400 * MIB:
            free()
        (action,) = chance.choices((alloc, free, torch.cuda.empty_cache), (1, 1, 0.1))
        action()
        assert stat("requested_bytes.all.current") == total_bytes
    check_snapshot(0)


# ---- snapshots and histories


def test_a_snapshot_shows_a_tensor_where_it_is() -> None:
    record_history("state", context=None)
    others = [block(2 * 311 * 411 * 4), block(310 * 410 * 4)]
    tensor = torch.empty(311, 411, device="cuda")
    many = [torch.empty(128, device="cuda") for _ in range(1000)]
    random.Random(0).shuffle(many)
    many.clear()
    snapshot = torch.cuda.memory._snapshot()
    (found,) = (
        part
        for segment in snapshot["segments"]
        for part in segment["blocks"]
        if part["requested_size"] == 311 * 411 * 4
    )
    assert found["address"] == tensor.data_ptr()
    assert found["state"] == "active_allocated"
    assert len(others) == 2
    summary = segsum(snapshot)
    assert f"segments: {len(snapshot['segments'])}\n" in summary


def test_giving_back_a_segment_is_an_event() -> None:
    record_history(context=None)
    block(30 * MIB)
    torch.cuda.empty_cache()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    assert events[-1]["action"] in {"segment_free", "segment_unmap"}


@pytest.mark.parametrize(("context", "stacks"), [("all", "python"), (None, "python")])
def test_a_history_is_drawn(context: str | None, stacks: str) -> None:
    record_history("all", context=context, stacks=stacks)
    x = torch.ones(128, 129, device="cuda")
    x * x + x * x
    snapshot: Any = torch.cuda.memory._snapshot()
    for page in (
        trace_plot(snapshot),
        trace_plot(snapshot, filter_freed=True),
        segment_plot(snapshot),
    ):
        assert "<html" in page or "<!DOCTYPE" in page
    assert str(128 * 129 * 4) in json.dumps(snapshot)


def _allocate_here() -> torch.Tensor:
    return torch.empty(3, 4, device="cuda")


def _free_here(tensors: list[torch.Tensor]) -> None:
    tensors.clear()


@pytest.mark.parametrize("context", ["state", "alloc", "all"])
def test_events_tell_where_they_come_from(context: str) -> None:
    record_history(context=context, stacks="python")
    tensors = [_allocate_here()]
    _free_here(tensors)
    text = json.dumps(torch.cuda.memory._snapshot())
    assert ("_allocate_here" in text) == (context != "state")
    assert ("_free_here" in text) == (context == "all")


def test_blocks_tell_where_they_come_from() -> None:
    record_history("state", stacks="python")
    tensor = _allocate_here()
    (found,) = (
        part
        for segment in all_segments()
        for part in segment["blocks"]
        if part["address"] == tensor.data_ptr()
    )
    assert found["frames"][0]["name"] == "_allocate_here"


def test_stacks_are_kept_while_they_are_wanted() -> None:
    def first() -> torch.Tensor:
        return torch.empty(4, 4, device="cuda")

    def second() -> torch.Tensor:
        return torch.empty(5, 5, device="cuda")

    record_history(context="all", stacks="python")
    held = [first()]
    record_history(context=None)
    held.append(second())
    text = json.dumps(torch.cuda.memory._snapshot())
    assert '"first"' in text
    assert '"second"' not in text


def test_events_carry_what_the_program_says() -> None:
    torch.cuda.memory._set_memory_metadata("as a test says")
    record_history(context=None)
    block(100)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    assert torch.cuda.memory._get_memory_metadata() == "as a test says"
    assert {event["user_metadata"] for event in events} == {"as a test says"}


@pytest.mark.parametrize(
    "skipped",
    [
        ["free_requested"],
        ["free_requested", "free_completed"],
        ["alloc"],
        ["segment_alloc"],
        [],
        None,
    ],
)
def test_actions_are_skipped(skipped: list[str] | None) -> None:
    torch.cuda.empty_cache()
    record_history(context=None, skip_actions=skipped)
    block(128 * 128)
    actions = {event["action"] for event in torch.cuda.memory._snapshot()["device_traces"][0]}
    assert actions.isdisjoint(skipped or [])
    assert actions >= {"alloc", "free_requested", "free_completed"}.difference(skipped or [])


def test_a_cycle_that_holds_memory_is_told_of() -> None:
    pages: list[str] = []
    stop: Callable[[], None] = observe_tensor_cycles(pages.append)
    try:

        def make() -> None:
            tensor = torch.empty(3, 4, device="cuda")

            def again(is_first: bool) -> object:  # noqa: FBT001
                return again(False) if is_first else tensor  # noqa: FBT003

            again(True)  # noqa: FBT003

        make()
        gc.collect()
        len(pages)  # the observer is called after the collection, at the next call
        make()
    finally:
        stop()
        gc.collect()
    assert "torch.Tensor" in pages[0]
    assert "cell_contents" in pages[0]


def test_the_profiler_sees_memory() -> None:
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        block(5000)
    sizes = [event.device_memory_usage for event in profile.events() or []]
    assert sum(sizes) == 0
    assert 5120 in sizes
