"""What C++ extensions ask PyTorch's allocator for: trackers, raw memory, bases, streams.

Only C++ can ask, so a small library of ours is compiled, and called from here.
"""

# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from tests.standin.asking import (
    MIB,
    advance_all,
    at_most,
    block,
    block_of,
    events,
    recorded,
    snapshot,
    stat,
)
from tests.standin.places import ROOT

import gmlake
from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
ACTIONS = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
    *("segment_map", "segment_unmap", "snapshot", "oom"),
)
GROWN, SHRUNK = {"segment_alloc", "segment_map"}, {"segment_free", "segment_unmap"}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

OURS = pytest.mark.skipif(not gmlake.is_enabled(), reason="PyTorch's own allocator serves")


class Event(NamedTuple):
    """What a tracker was told."""

    tracker: int
    action: str
    device: int
    address: int
    size_bytes: int


class Asker:
    """The library, with Python's types."""

    def __init__(self, path: Path) -> None:
        self.library: Any = ctypes.CDLL(str(path))
        for name in ("largest_idle", "base_of", "name", "segments", "take_events"):
            getattr(self.library, name).restype = ctypes.c_size_t
        for name in ("statistic", "observations"):
            getattr(self.library, name).restype = ctypes.c_int64

    def track(self, number: int) -> None:
        self.library.track(ctypes.c_int64(number))

    def told(self) -> list[Event]:
        """Return what the trackers were told since the last call."""
        rows = (ctypes.c_int64 * 5 * 10_000)()
        count = self.library.take_events(rows, 10_000)
        return [
            Event(row[0], ACTIONS[row[1]], row[2], row[3], row[4]) for row in list(rows)[:count]
        ]

    def base_of(self, address: int) -> tuple[int, int]:
        """Return begin and size of what an address lies in."""
        size = ctypes.c_size_t()
        base = self.library.base_of(ctypes.c_void_p(address), ctypes.byref(size))
        return int(base), size.value

    def _taken(self, name: str, size_bytes: int, *more: ctypes.c_void_p) -> int:
        out = ctypes.c_void_p()
        code = getattr(self.library, name)(ctypes.c_size_t(size_bytes), *more, ctypes.byref(out))
        if code == 1:
            raise torch.OutOfMemoryError
        assert code == 0
        return int(out.value or 0)

    def raw_alloc(self, size_bytes: int, stream: int = 0) -> int:
        return self._taken("raw_alloc", size_bytes, ctypes.c_void_p(stream))

    def allocate(self, size_bytes: int) -> int:
        return self._taken("allocate", size_bytes)

    def raw_delete(self, address: int) -> None:
        self.library.raw_delete(ctypes.c_void_p(address))

    def release(self, address: int) -> None:
        self.library.release(ctypes.c_void_p(address))

    def statistic(self, name: str, device: int = 0) -> int:
        return int(self.library.statistic(device, name.encode()))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """Compile the library; attach two trackers, which cannot be taken away."""
    home = Path(torch.__file__).parent
    made = tmp_path_factory.mktemp("interface") / "interface.so"
    command = [
        *(COMPILER, "-std=c++20", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        *("-isystem", home / "include", "-isystem", ROOT / "csrc/torch/native/cuda"),
        *(Path(__file__).parent / "interface.cpp", "-o", made),
        *(f"-L{home / 'lib'}", "-lc10", "-lc10_cuda"),
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    torch.cuda.init()
    torch.empty(1, device="cuda")
    torch.cuda.empty_cache()
    asker = Asker(made)
    for number in (1, 2):
        asker.track(number)
    return asker


@pytest.fixture
def asker(library: Asker) -> Iterator[Asker]:
    torch.cuda.empty_cache()
    library.told()
    yield library
    library.told()


def of_blocks(told: list[Event], tracker: int = 1) -> list[Event]:
    """Return what one tracker was told of blocks."""
    return [one for one in told if one.tracker == tracker and one.action not in GROWN | SHRUNK]


def sizes(told: list[Event], wanted: set[str], tracker: int = 1) -> int:
    return sum(one.size_bytes for one in told if one.action in wanted and one.tracker == tracker)


# ---- trackers


def test_a_tracker_is_told_of_a_tensor(asker: Asker) -> None:
    held = block(30)
    address = held.data_ptr()
    del held
    told = of_blocks(asker.told())
    assert [one.action for one in told] == ["alloc", "free_requested", "free_completed"]
    assert {(one.device, one.address, one.size_bytes) for one in told} == {(0, address, 30 * MIB)}


def test_every_tracker_is_told_the_same(asker: Asker) -> None:
    held = [block(30), block(0.1, "cuda:1")]
    held.clear()
    torch.cuda.empty_cache()
    told = asker.told()
    first, second = ([one[1:] for one in told if one.tracker == number] for number in (1, 2))
    assert first == second
    assert {one[1] for one in first} == {0, 1}


def test_a_tracker_is_told_of_memory_that_comes_and_goes(asker: Asker) -> None:
    reserved = torch.cuda.memory_reserved()
    held = block(30)
    grown = asker.told()
    assert sizes(grown, GROWN) == torch.cuda.memory_reserved() - reserved
    (covering,) = (
        one
        for one in grown
        if one.tracker == 1
        and one.action in GROWN
        and one.address <= held.data_ptr() < one.address + one.size_bytes
    )
    assert held.data_ptr() + 30 * MIB <= covering.address + covering.size_bytes
    del held
    assert sizes(asker.told(), SHRUNK) == 0
    torch.cuda.empty_cache()
    assert sizes(asker.told(), SHRUNK) == sizes(grown, GROWN)


def test_a_tracker_is_told_of_memory_that_is_made_anew(asker: Asker) -> None:
    held = block(30)
    grown = [one[1:] for one in asker.told() if one.action in GROWN]
    address = held.data_ptr()
    del held
    torch.cuda.empty_cache()
    gone = sizes(asker.told(), SHRUNK)
    held = block(30)
    if held.data_ptr() == address:
        assert [one[1:] for one in asker.told() if one.action in GROWN] == grown
        assert gone == sum(one[3] for one in grown) / 2


@OURS
def test_a_tracker_is_told_of_what_sleeps_and_wakes(asker: Asker) -> None:
    with gmlake.region("told", backup="cpu"):
        held = block(30)
    assert sizes(asker.told(), GROWN) >= held.nbytes
    gmlake.sleep("told")
    gone = sizes(asker.told(), SHRUNK)
    assert gone >= held.nbytes
    gmlake.wake("told")
    assert sizes(asker.told(), GROWN) == gone
    del held


def test_what_a_tracker_adds_up_is_what_is_reserved(asker: Asker) -> None:
    reserved = torch.cuda.memory_reserved()
    total = 0
    held = []
    for step, mib in enumerate((3, 40, 0.2, 90, 25, 7)):
        held.append(block(mib))
        if step % 2:
            held.pop(0)
        if step == 3:
            torch.cuda.empty_cache()
        told = asker.told()
        total += sizes(told, GROWN) - sizes(told, SHRUNK)
        assert torch.cuda.memory_reserved() == reserved + total


def test_live_tensors_lie_in_what_a_tracker_was_told_of(asker: Asker) -> None:
    places: dict[int, int] = {}
    held = [block(mib) for mib in (3, 40, 0.2, 90)]
    for one in asker.told():
        if one.tracker == 1 and one.action in GROWN:
            places[one.address] = one.size_bytes
    bytes_of: set[int] = set()
    for begin, size in places.items():
        bytes_of.update(range(begin // MIB, (begin + size) // MIB))
    for tensor in held:
        begin, end = tensor.data_ptr() // MIB, (tensor.data_ptr() + tensor.nbytes - 1) // MIB
        assert bytes_of.issuperset(range(begin, end + 1))


def test_a_tracker_is_told_of_a_pools_memory(asker: Asker) -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = block(30)
    told = asker.told()
    assert sizes(told, GROWN) == 30 * MIB
    assert [one.address for one in of_blocks(told)] == [held.data_ptr()]
    del held, pool
    torch.cuda.empty_cache()
    assert sizes(asker.told(), SHRUNK) == 30 * MIB


def test_a_tracker_is_told_of_the_end_of_memory(asker: Asker) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        block(1 << 22)
    (event,) = (one for one in of_blocks(asker.told()) if one.action == "oom")
    assert (event.device, event.size_bytes) == (0, 1 << 42)


def test_trackers_are_told_by_many_threads(asker: Asker) -> None:
    def work() -> None:
        for _ in range(50):
            block(0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    actions = [one.action for one in of_blocks(asker.told())]
    assert actions.count("alloc") == actions.count("free_completed") == 200


def test_a_history_and_trackers_go_together(asker: Asker) -> None:
    with recorded():
        held = block(30)
        found = [event["addr"] for event in events() if event["action"] == "alloc"]
    assert found == [held.data_ptr()]
    told = [one.address for one in of_blocks(asker.told()) if one.action == "alloc"]
    assert told == [held.data_ptr()]
    block(20)
    assert len(of_blocks(asker.told())) == 3


# ---- memory


def test_there_is_one_allocator(asker: Asker) -> None:
    assert asker.library.is_one() == 1
    name = ctypes.create_string_buffer(64)
    asker.library.name(name, 64)
    assert name.value.decode() == torch.cuda.get_allocator_backend() == "native"


def test_raw_memory_comes_and_goes(asker: Asker) -> None:
    before = torch.cuda.memory_allocated()
    address = asker.raw_alloc(3 * MIB)
    assert torch.cuda.memory_allocated() == before + 3 * MIB
    assert asker.statistic("allocated_bytes") == before + 3 * MIB
    asker.raw_delete(address)
    assert torch.cuda.memory_allocated() == before


def test_raw_memory_of_a_stream_is_for_that_stream(asker: Asker) -> None:
    side = torch.cuda.Stream()
    with recorded():
        for _ in range(2):
            address = asker.raw_alloc(30 * MIB, side.cuda_stream)
            asker.raw_delete(address)
        told = [
            (event["addr"], event["stream"]) for event in events() if event["action"] == "alloc"
        ]
    assert told == [(address, side.cuda_stream)] * 2


def test_raw_memory_is_freed_by_another_thread(asker: Asker) -> None:
    before = torch.cuda.memory_allocated()
    address = asker.raw_alloc(3 * MIB)
    thread = threading.Thread(target=asker.raw_delete, args=(address,))
    thread.start()
    thread.join()
    assert torch.cuda.memory_allocated() == before


def test_raw_memory_is_that_of_the_current_device(asker: Asker) -> None:
    before = torch.cuda.memory_allocated(1)
    with torch.cuda.device(1):
        address = asker.raw_alloc(3 * MIB)
    assert torch.cuda.memory_allocated(1) == before + 3 * MIB
    asker.raw_delete(address)
    assert torch.cuda.memory_allocated(1) == before


def test_a_pointer_frees_itself(asker: Asker) -> None:
    before = torch.cuda.memory_allocated()
    address = asker.allocate(3 * MIB)
    assert asker.statistic("allocated_bytes") == before + 3 * MIB
    asker.release(address)
    assert torch.cuda.memory_allocated() == before


def test_nothing_is_a_pointer_to_nothing(asker: Asker) -> None:
    before = stat("allocation.all.allocated")
    assert asker.allocate(0) == asker.raw_alloc(0) == 0
    asker.raw_delete(0)
    assert stat("allocation.all.allocated") == before


def test_the_end_of_memory_is_an_exception_of_its_kind(asker: Asker) -> None:
    for ask in (asker.raw_alloc, asker.allocate):
        with pytest.raises(torch.OutOfMemoryError):
            ask(1 << 42)
    with at_most(100), pytest.raises(torch.OutOfMemoryError):
        asker.raw_alloc(200 * MIB)


def test_an_observer_in_c_is_told(asker: Asker) -> None:
    asker.library.observe()
    before = asker.library.observations()
    with pytest.raises(torch.OutOfMemoryError):
        block(1 << 22)
    assert asker.library.observations() == before + 1


def test_statistics_are_those_of_python(asker: Asker) -> None:
    held = [block(30), block(0.1), block(7, "cuda:1")]
    for device in (0, 1):
        assert asker.statistic("allocated_bytes", device) == torch.cuda.memory_allocated(device)
        assert asker.statistic("reserved_bytes", device) == torch.cuda.memory_reserved(device)
        assert asker.statistic("allocation", device) == stat("allocation.all.current", device)
    assert asker.statistic("allocation", 1) == 1
    held.clear()


def test_what_is_free_is_that_of_the_device(asker: Asker) -> None:
    held = block(30)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    asker.library.memory_info(0, ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == torch.cuda.mem_get_info(0)
    assert held.numel() > 0


def test_the_largest_idle_block_serves_without_new_memory(asker: Asker) -> None:
    held = [block(mib) for mib in (50, 30, 40)]
    assert asker.library.largest_idle(0) < 20 * MIB
    held.clear()
    idle = asker.library.largest_idle(0)
    assert idle >= 50 * MIB
    calls = control.calls()["cuMemCreate"] + control.calls()["cudaMalloc"]
    held = [torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")]
    assert control.calls()["cuMemCreate"] + control.calls()["cudaMalloc"] == calls
    assert asker.library.largest_idle(0) <= idle
    held.clear()
    torch.cuda.empty_cache()
    assert asker.library.largest_idle(0) <= 1


def test_the_base_of_a_tensor_is_where_its_memory_begins(asker: Asker) -> None:
    held = block(30)
    begin, size = asker.base_of(held.data_ptr())
    assert begin <= held.data_ptr()
    assert held.data_ptr() + held.nbytes <= begin + size


def test_the_base_of_a_pools_tensor_is_where_its_segment_begins(asker: Asker) -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = [block(5), block(5)]
    bases = {asker.base_of(part.data_ptr()) for part in held}
    assert bases == {(held[0].data_ptr(), 20 * MIB)}


def test_a_stream_that_c_lends_to_is_waited_for(asker: Asker) -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(8)
        address = lent.data_ptr()
        with torch.cuda.stream(side):
            lent.add_(1)
        storage = ctypes.c_void_p(lent.untyped_storage()._cdata)
        asker.library.lend(storage, ctypes.c_int64(side.cuda_stream), 0)
        del lent
        assert not address <= block(8).data_ptr() < address + 8 * MIB
        advance_all(side)
        assert block(8).data_ptr() == address


def test_copies_go_between_tensors_of_any_kind(asker: Asker) -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = block(1)
    outside, host = block(1), torch.full((MIB,), 7, dtype=torch.uint8)
    inside.copy_(host)
    size = ctypes.c_size_t(MIB)
    pointers = [ctypes.c_void_p(part.data_ptr()) for part in (outside, inside)]
    assert asker.library.copy(*pointers, size) == 0
    stream = ctypes.c_void_p(0)
    assert asker.library.copy_between(pointers[1], 0, pointers[0], 0, size, stream, 0) == 0
    on_second = ctypes.c_void_p((there := block(1, "cuda:1")).data_ptr())
    assert asker.library.copy_between(on_second, 1, pointers[0], 0, size, stream, 0) == 0
    torch.cuda.synchronize()
    assert there.device.index == 1


def test_events_tell_what_was_compiled(asker: Asker) -> None:
    with recorded(compile_context=True):
        asker.library.push_compilation(b"outer")
        first = block(3)
        asker.library.push_compilation(b"inner")
        second = block(3)
        asker.library.pop_compilation()
        third = block(3)
        asker.library.pop_compilation()
        fourth = block(3)
        found = {
            event["addr"]: event["compile_context"]
            for event in events()
            if event["action"] == "alloc"
        }
    tensors = (first, second, third, fourth)
    told = [found[part.data_ptr()] for part in tensors]
    assert told == ["outer", "inner", "outer", "N/A"]


def test_a_snapshot_leaves_out_events_that_nobody_asks_for(asker: Asker) -> None:
    count = ctypes.c_size_t()
    with recorded():
        held = block(3)
        for has_traces in (1, 0):
            found = asker.library.segments(has_traces, ctypes.byref(count))
            assert found == len(snapshot()["segments"]) > 0
            assert (count.value > 0) == bool(has_traces)
    assert block_of(held)["state"] == "active_allocated"


def test_pytorch_tells_the_allocator_in_place_of_all_captures() -> None:
    """Notices a later PyTorch, which registers captures of conditional nodes with its own alone.

    docs/compatibility.md says what is lost then. The adapter would have to register them itself, or
    refuse captures of torch.cond.
    """
    headers = Path(torch.__file__).parent / "include" / "c10" / "cuda"
    assert (headers / "CUDACachingAllocator.h").exists()
    assert not (headers / "CUDAGraphMemory.h").exists()


@OURS
def test_a_tracker_may_ask_for_memory(asker: Asker) -> None:
    """Under PyTorch's own allocator that would call it while it changes its lists."""
    asker.library.left_to_ask.restype = ctypes.c_size_t
    asker.library.track_by_asking(ctypes.c_size_t(3))
    torch.cuda.empty_cache()
    held = block(30)
    assert asker.library.left_to_ask() == 0
    del held
