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
import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import tiling_faults
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


def test_emptying_the_cache_waits_once() -> None:
    block(30 * MIB)
    before = stat("num_sync_all_streams")
    torch.cuda.empty_cache()
    assert stat("num_sync_all_streams") == before + 1


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


# ---- the end of memory


@pytest.mark.parametrize("gib", [800_000_000, 8_000_000_000])
def test_what_no_device_has_is_out_of_memory(gib: int) -> None:
    tensor = torch.zeros(1024, device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allocate "):
        block(gib * GIB)
    tensor.fill_(1)
    torch.cuda.synchronize()


def test_memory_is_there_again_once_it_is_freed() -> None:
    size_bytes = int(torch.cuda.get_device_properties(0).total_memory * 0.6)
    first = block(size_bytes)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        block(size_bytes)
    del first
    assert block(size_bytes).nbytes == size_bytes


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
