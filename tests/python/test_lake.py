"""Lake and Block: what is promised for every argument, thread, and order of calls."""

from __future__ import annotations

import gc
import operator
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from developer import hooks, needs_lab
from gmlake import Lake
from gmlake.settings import as_typed, settings_of
from policies import lending_policies

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


@pytest.fixture
def host() -> Any:
    """A lake with real bytes."""
    with Lake("host", capacity="256MiB") as lake:
        yield lake


# ---- opening


def test_defaults() -> None:
    with Lake() as lake:
        assert lake.stats()["live_blocks"] == 0
        assert not lake.closed
        assert repr(lake) == "<gmlake.Lake: 0 blocks, 0 bytes held>"
    assert lake.closed
    assert repr(lake) == "<gmlake.Lake, closed>"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"driver": "metal"}, "cuda, host, sim"),
        ({"policy": "magic"}, "stitch"),
        ({"capacity": 0}, "0 bytes"),
        ({"capacity": "lots"}, "not a size"),
        ({"capacity": -1}, "outside 0"),
        ({"capacity": 2**64}, "outside 0"),
        ({"device": -1}, "outside 0"),
        ({"device": 2**40}, "outside 0"),
        ({"no_such_knob": 1}, "frag_limit"),
        ({"max_views": 0}, "max_views"),
        ({"growth": "many"}, "growth: 'many' is not a size"),
        ({"chunk_size": 3 * MIB + 1}, "chunk"),
        (
            {"optimize_for": "fast"},
            "^optimize_for is 'fast', but must be time, balanced or memory$",
        ),
        (
            {"optimize_for": "2MiB"},
            "^optimize_for is '2MiB', but must be time, balanced or memory$",
        ),
        ({"optimize_for": "fast\ncars"}, r"^optimize_for is 'fast\\ncars', but must be "),
        (
            {"optimize_for": 3},
            "^optimize_for is 3, but must be between 0 and 2, for: time balanced memory$",
        ),
        (
            {"optimize_for": "3"},
            "^optimize_for is 3, but must be between 0 and 2, for: time balanced memory",
        ),
        ({"optimize_for": -1}, "outside 0"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        Lake(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [{"driver": 3}, {"policy": None}, {"growth": None}, {"optimize_for": None}],
)
def test_arguments_of_wrong_types(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Lake(**arguments)


@pytest.mark.parametrize(
    ("given", "number"), [("time", 0), (" Balanced ", 1), ("memory", 2), ("2", 2), (0, 0), (2, 2)]
)
def test_cost_model_is_a_word_or_its_number(given: str | int, number: int) -> None:
    assert settings_of({"optimize_for": given}) == (("optimize_for", number),)
    assert as_typed("optimize_for", number) == ("time", "balanced", "memory")[number]
    with Lake("sim", "stitch", optimize_for=given) as lake:
        lake.free(lake.allocate(20 * MIB))


def test_a_setting_is_written_as_it_may_be_typed() -> None:
    assert as_typed("growth", 64 * MIB) == "64MiB"
    assert as_typed("growth", 0) == "0"
    assert as_typed("max_views", 1 << 20) == str(1 << 20)
    assert as_typed("optimize_for", "balanced") == "balanced"
    assert as_typed("optimize_for", 3) == "3"
    assert as_typed("roundup_power2_divisions.256", 2) == "2"
    for knob in gmlake.knobs():
        value = max(knob["default"], 1)
        typed = as_typed(knob["name"], value)
        assert settings_of({knob["name"]: typed}) == ((knob["name"], value),)


def test_an_absent_driver_says_what_to_do() -> None:
    try:
        gmlake.device_describe("cuda")
    except gmlake.DriverError as error:
        reason = str(error)
    else:
        pytest.skip("a CUDA device is there")
    assert "sim" in reason
    with pytest.raises(gmlake.DriverError, match="sim"):
        Lake("cuda")


@pytest.mark.gpu
def test_a_cuda_device_serves_and_takes_back() -> None:
    try:
        about = gmlake.device_describe("cuda")
    except gmlake.DriverError as error:
        pytest.skip(f"no CUDA device: {error}")
    assert about["has_virtual_memory"]
    with Lake("cuda", capacity="1GiB") as lake:
        blocks = [lake.allocate(37 * MIB) for _ in range(4)]
        assert len({int(block) for block in blocks}) == 4
        for block in blocks[::2]:
            lake.free(block)
        lake.free(lake.allocate(74 * MIB))
        lake.check()


# ---- allocating and freeing


@pytest.mark.parametrize("driver", ["sim", "host"])
def test_a_block_knows_what_it_is(policy: str, driver: str) -> None:
    with Lake(driver, policy, "128MiB") as lake:
        block = lake.allocate(5 * MIB + 1, stream=3)
        assert block.address == int(block) == operator.index(block) > 0
        assert block.address % 512 == 0
        assert block.requested_size == 5 * MIB + 1
        assert block.size >= block.requested_size
        assert block.stream == 3
        assert block.state == "grow"
        assert block.is_live
        assert block.lake is lake
        assert repr(block).startswith(f"<gmlake.Block at {block.address:#x}: 5242881 bytes")
        lake.free(block)
        assert not block.is_live
        assert repr(block).endswith("freed>")
        again = lake.allocate(5 * MIB + 1, stream=3)
        assert again.address == block.address
        assert again.state != "grow"
        assert not block.is_live, "the new block at that address is another one"
        lake.check()


def test_size_zero_holds_nothing(policy: str) -> None:
    with Lake(policy=policy) as lake:
        block = lake.allocate(0)
        assert (block.address, block.size, block.requested_size) == (0, 0, 0)
        assert lake.stats()["reserved_bytes"] == 0
        lake.free(block)
        with pytest.raises(ValueError, match="freed before"):
            lake.free(block)
        lake.free(0)


@pytest.mark.parametrize("size", [2**48 + 1, 2**63, 2**64 - 513, 2**64 - 1, 2**64, 2**200, -1])
def test_sizes_no_device_has(policy: str, size: int) -> None:
    with Lake(policy=policy, capacity="1GiB") as lake:
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            lake.allocate(size)
        lake.check()
        assert lake.stats()["reserved_bytes"] == 0


@pytest.mark.parametrize("size", [2**30 + 1, 2**48])
def test_sizes_this_device_has_not(policy: str, size: int) -> None:
    with Lake(policy=policy, capacity="1GiB") as lake:
        with pytest.raises(gmlake.OutOfMemoryError, match=r"^[^\n]+$") as caught:
            lake.allocate(size)
        assert isinstance(caught.value, MemoryError)
        assert isinstance(caught.value, gmlake.Error)
        assert lake.stats()["states"]["oom"] == 1
        lake.free(lake.allocate(512 * MIB))
        lake.check()


def test_a_size_may_be_text() -> None:
    with Lake() as lake:
        assert lake.allocate("10MiB").requested_size == 10 * MIB
        with pytest.raises(ValueError, match="'10MoB' is not a size"):
            lake.allocate("10MoB")


@pytest.mark.parametrize("size", [1.5, None, b"1"])
def test_sizes_that_are_no_integers(size: Any) -> None:
    with Lake() as lake, pytest.raises(TypeError):
        lake.allocate(size)


def test_numpy_integers_are_integers() -> None:
    with Lake() as lake:
        assert lake.allocate(np.int64(100)).requested_size == 100


def test_a_double_free_changes_nothing(policy: str) -> None:
    with Lake(policy=policy) as lake:
        kept, block = lake.allocate(MIB), lake.allocate(MIB)
        address = block.address
        lake.free(block)
        with pytest.raises(ValueError, match="freed before"):
            lake.free(block)
        with pytest.raises(ValueError, match="no live block begins at"):
            lake.free(address)
        assert kept.is_live
        assert lake.stats()["live_blocks"] == 1
        lake.check()


@pytest.mark.parametrize("address", [1, 512, 2**63, 2**64 - 1])
def test_foreign_addresses(policy: str, address: int) -> None:
    with Lake(policy=policy) as lake:
        block = lake.allocate(2 * MIB)
        for wrong in (address, block.address + 512):
            with pytest.raises(ValueError, match="no live block begins at"):
                lake.free(wrong)
        lake.check()


@pytest.mark.parametrize("address", [-1, 2**64, 2**300])
def test_numbers_that_are_no_addresses(address: int) -> None:
    with Lake() as lake, pytest.raises(ValueError, match="address must be from 0"):
        lake.free(address)


def test_a_block_of_another_lake() -> None:
    with Lake() as one, Lake() as two:
        block = one.allocate(100)
        two.allocate(100)
        with pytest.raises(ValueError, match="belongs to another lake"):
            two.free(block)
        assert block.is_live


def test_freeing_by_address_retires_the_block() -> None:
    with Lake() as lake:
        block = lake.allocate(MIB)
        lake.free(block.address)
        assert not block.is_live
        with pytest.raises(ValueError, match="freed before"):
            lake.free(block)
        with pytest.raises(ValueError, match="was freed"):
            int(block)


def test_a_collected_block_keeps_its_memory() -> None:
    with Lake() as lake:
        address = int(lake.allocate(MIB))
        gc.collect()
        assert lake.stats()["live_blocks"] == 1
        lake.free(address)
        assert lake.stats()["live_blocks"] == 0


def test_a_block_keeps_its_lake() -> None:
    lake = Lake()
    reference = weakref.ref(lake)
    block = lake.allocate(MIB)
    del lake
    gc.collect()
    assert reference() is block.lake
    block.lake.free(block)
    del block
    gc.collect()
    assert reference() is None


# ---- the buffer protocol


def test_a_block_on_host_is_writable_memory(host: Lake) -> None:
    block = host.allocate(3 * MIB + 5)
    with memoryview(block) as view:
        assert (len(view), view.readonly, view.format, view.contiguous) == (
            3 * MIB + 5,
            False,
            "B",
            True,
        )
        view[:3] = b"abc"
        view[-1] = 7
    array = np.frombuffer(memoryview(block), np.uint8)
    assert array[:3].tobytes() == b"abc"
    assert array[-1] == 7


def test_a_buffer_in_use_forbids_free_and_close(host: Lake) -> None:
    block = host.allocate(MIB)
    view = memoryview(block)
    with pytest.raises(BufferError, match="in use"):
        host.free(block)
    with pytest.raises(BufferError, match="in use"):
        host.free(block.address)
    with pytest.raises(BufferError, match="1 buffers"):
        host.close()
    view[0] = 1
    view.release()
    host.free(block)
    with pytest.raises(ValueError, match="was freed"):
        memoryview(block)


def test_an_empty_block_is_an_empty_buffer(host: Lake) -> None:
    assert bytes(host.allocate(0)) == b""


def test_only_host_has_bytes() -> None:
    with Lake("sim") as lake:
        block = lake.allocate(100)
        with pytest.raises(gmlake.UnsupportedError):
            memoryview(block)
        lake.free(block)


# ---- closing


def test_use_after_close() -> None:
    lake = Lake("host")
    block = lake.allocate(MIB)
    lake.close()
    lake.close()
    assert not block.is_live
    uses: list[Callable[[], object]] = [
        lambda: lake.allocate(1),
        lambda: lake.free(block),
        lambda: lake.free(0),
        lake.stats,
        lake.torch_stats,
        lake.trim,
        lake.check,
        lake.spans,
        lake.reset_peaks,
        lambda: int(block),
        lambda: memoryview(block),
        lambda: gmlake._core.Replay(lake, 1),  # noqa: SLF001 (no public way to make one)
    ]
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(ValueError, match="closed"), lake:
        pass


def test_close_waits_for_other_threads(policy: str) -> None:
    lake = Lake(policy=policy)
    errors = []

    def churn() -> None:
        try:
            while True:
                lake.free(lake.allocate(3 * MIB))
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.05)
    lake.close()
    for thread in threads:
        thread.join(timeout=600)
    assert not any(thread.is_alive() for thread in threads)
    assert all("closed" in error for error in errors)
    assert len(errors) == 3


def test_a_lake_left_open_at_exit_is_no_crash() -> None:
    program = (
        "import gmlake; lake = gmlake.Lake('host'); block = lake.allocate(100);"
        "view = memoryview(block); import sys; sys.lake = lake"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


# ---- counters


def test_stats_agree_with_what_was_done(policy: str) -> None:
    with Lake(policy=policy) as lake:
        blocks = [lake.allocate(size) for size in (100, 5 * MIB, 0, 30 * MIB)]
        lake.free(blocks[1])
        stats = lake.stats()
        assert (stats["live_blocks"], stats["peak_live_blocks"]) == (2, 3)
        assert stats["requested_bytes"] == 100 + 30 * MIB
        assert stats["live_bytes"] == 512 + 30 * MIB
        assert stats["peak_live_bytes"] == 512 + 35 * MIB
        assert (stats["allocations"], stats["frees"]) == (3, 1)
        assert sum(stats["states"].values()) == 3
        assert stats["reserved_bytes"] >= 35 * MIB
        assert stats["driver_time_ns"] == sum(stats["driver_call_ns"].values()) > 0
        times = stats["driver_call_ns"].items()
        assert all((time_ns > 0) == (stats["driver_calls"][name] > 0) for name, time_ns in times)
        lake.free(blocks[0])
        lake.free(blocks[3])
        lake.reset_peaks()
        assert lake.stats()["peak_live_bytes"] == 0
        released = lake.trim()
        assert released == stats["reserved_bytes"]
        assert lake.stats()["reserved_bytes"] == 0


def test_torch_stats_carry_torchs_names() -> None:
    with Lake(policy="caching") as lake:
        lake.free(lake.allocate(5 * MIB))
        lake.allocate(100)
        stats = lake.torch_stats()
        assert stats["allocation.all.current"] == 1
        assert stats["allocation.large_pool.freed"] == 1
        assert stats["allocated_bytes.small_pool.current"] == 512
        assert stats["reserved_bytes.all.current"] == 22 * MIB
        assert stats["segment.all.current"] == 2
        assert stats["num_ooms"] == 0
        assert stats["max_split_size"] == -1
        assert len(stats) == 9 * 3 * 4 + 2 * 4 + 6
    with Lake(policy="stitch") as lake:  # in its own terms, under the same names
        lake.free(lake.allocate(5 * MIB))
        lake.allocate(100)
        own = lake.torch_stats()
        assert own.keys() == stats.keys()
        assert own["allocated_bytes.all.current"] == 512
        assert own["reserved_bytes.all.current"] == lake.stats()["reserved_bytes"]


def test_spans_tile(policy: str) -> None:
    with Lake(policy=policy) as lake:
        blocks = [lake.allocate(size, stream) for stream in (0, 1) for size in (100, MIB, 6 * MIB)]
        lake.free(blocks[0])
        live = {(block.address, block.requested_size) for block in blocks[1:]}
        found = set()
        for span in lake.spans():
            position = span["address"]
            for address, size, requested, is_used in span["ranges"]:
                assert address == position
                position += size
                if is_used:
                    found.add((address, requested))
            assert position == span["address"] + span["size"]
        assert live <= found


@needs_lab
def test_the_driver_call_that_is_to_fail_fails() -> None:
    with hooks(fail_call=2), Lake() as lake:
        with pytest.raises(gmlake.Error, match=r"^[^\n]+$"):
            lake.allocate(5 * MIB)
        lake.free(lake.allocate(5 * MIB))
        lake.check()


@pytest.mark.parametrize("policy", lending_policies())
def test_one_allocation_may_serve_all(policy: str) -> None:
    with gmlake.Lake("host", policy, arena="32MiB") as lake:
        assert lake.arena is not None
        begin, size = lake.arena
        assert size == 32 * MIB
        blocks = [lake.allocate(6 * MIB) for _ in range(5)]
        assert all(begin <= block.address <= begin + size - 6 * MIB for block in blocks)
        with pytest.raises(gmlake.OutOfMemoryError):
            lake.allocate(6 * MIB)
    with gmlake.Lake("host", policy) as lake:
        assert lake.arena is None
