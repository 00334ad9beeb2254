"""What C++ extensions ask PyTorch's allocator for: trackers, raw memory, bases, streams.

Only C++ can ask, so a small library of ours is compiled, and called from here.
"""

# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from tests.standin.asking import (
    MIB,
    advance_all,
    block,
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


# ---- memory


def test_there_is_one_allocator(asker: Asker) -> None:
    assert asker.library.is_one() == 1
    name = ctypes.create_string_buffer(64)
    asker.library.name(name, 64)
    assert name.value.decode() == torch.cuda.get_allocator_backend() == "native"


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
