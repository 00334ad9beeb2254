"""What PyTorch's own tests ask of snapshots and recorded histories, in our words.

See test_pytorch_memory.py, which asks for the plainer part of it.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import json
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import requested_after, statistics, sums, tiling_faults
from tests.standin.asking import (
    MIB,
    C,
    advance_all,
    block,
    block_of,
    events,
    holds,
    recorded,
    segments_of,
    snapshot,
    stat,
)
from torch.cuda import _memory_viz as viz

from gmlake.standin import control

if TYPE_CHECKING:
    from pathlib import Path


def actions(device: int = 0) -> list[str]:
    """Return the recorded actions on blocks."""
    of_segments = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
    return [event["action"] for event in events(device) if event["action"] not in of_segments]


def allocations(device: int = 0) -> list[dict[str, Any]]:
    return [event for event in events(device) if event["action"] == "alloc"]


def make_it() -> torch.Tensor:
    return torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")


def drop_it(held: list[torch.Tensor]) -> None:
    held.clear()


def names(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["name"] for frame in frames]


# ---- where memory comes from


def test_frames_tell_function_file_and_line() -> None:
    with recorded():
        held = make_it()
        first = block_of(held)["frames"][0]
        (event,) = allocations()
    assert first["name"] == "make_it"
    assert first["filename"] == __file__
    assert first["line"] == make_it.__code__.co_firstlineno + 1
    assert event["frames"][0] == first


def test_frames_of_a_free_are_those_of_who_freed() -> None:
    with recorded(context="all"):
        held = [make_it()]
        drop_it(held)
        freed = [event for event in events() if event["action"] == "free_requested"]
    assert [names(event["frames"])[0] for event in freed] == ["drop_it"]


def test_frames_of_c_are_there_when_they_are_asked_for() -> None:
    counts = {}
    for stacks in ("python", "all"):
        with recorded(stacks=stacks):
            held = make_it()
            frames = block_of(held)["frames"]
            counts[stacks] = len(frames)
            assert "make_it" in names(frames)
            assert any("at::" in name for name in names(frames)) == (stacks == "all")
            del held
    assert counts["all"] > counts["python"]


def test_new_memory_tells_which_line_made_it_grow() -> None:
    with recorded(context="all"):
        held = make_it()
        grown = [event for event in events() if event["action"] in {"segment_alloc", "segment_map"}]
    assert sum(event["size"] for event in grown) >= held.nbytes
    assert all("make_it" in names(event["frames"]) for event in grown)


def test_blocks_from_before_have_no_frames_and_those_from_after_do() -> None:
    before = make_it()
    with recorded():
        after = make_it()
        assert block_of(before)["frames"] == []
        assert names(block_of(after)["frames"])[0] == "make_it"


def test_frames_of_two_threads_do_not_mix() -> None:
    kept: dict[str, torch.Tensor] = {}

    def first() -> None:
        kept["first"] = torch.empty(3 * MIB, device="cuda")

    def second() -> None:
        kept["second"] = torch.empty(3 * MIB, device="cuda")

    with recorded():
        threads = [threading.Thread(target=work) for work in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, tensor in kept.items():
            assert names(block_of(tensor)["frames"])[0] == name


# ---- events


def test_events_are_in_the_order_of_their_times() -> None:
    with recorded():
        for mib in (1, 30, 2, 50):
            block(mib)
        torch.cuda.empty_cache()
        times = [event["time_us"] for event in events()]
    assert times == sorted(times)
    assert len(times) >= 12


def test_times_are_those_of_the_clock() -> None:
    begin = time.time_ns() // 1000
    with recorded():
        held = block(3)
        (event,) = allocations()
    end = time.time_ns() // 1000
    assert begin - 60_000_000 <= event["time_us"] <= end + 60_000_000
    del held


def test_times_stay_what_they_were_in_a_later_snapshot() -> None:
    with recorded():
        held = block(3)
        times = []
        for _ in range(3):
            times.append(allocations()[0]["time_us"])
            time.sleep(1)
    assert max(times) - min(times) < 1_000_000  # a look takes far less, also on a busy machine
    del held


def test_an_event_tells_address_size_and_stream() -> None:
    side = torch.cuda.Stream()
    with recorded():
        with torch.cuda.stream(side):
            held = block(3)
        (event,) = allocations()
    assert event["addr"] == held.data_ptr()
    assert event["size"] == 3 * MIB
    assert event["stream"] == side.cuda_stream


def test_a_history_adds_up_to_what_lives() -> None:
    with recorded():
        before = stat("requested_bytes.all.current")
        held = [block(mib) for mib in (0.001, 3, 12.5, 40)]
        held.pop(1)
        live = stat("requested_bytes.all.current") - before
        assert requested_after(events()) == live


def test_a_free_that_waits_for_a_stream_completes_later() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"), recorded():
        lent = block(8)
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        assert actions() == ["alloc", "free_requested"]
        advance_all(side)
        torch.cuda.synchronize()
        block(8)
        torch.cuda.empty_cache()
        assert actions().count("free_completed") == 2


def test_the_oldest_events_give_way() -> None:
    with recorded(max_entries=6):
        for _ in range(20):
            block(0.01)
        last = block(0.02)
        kept = events()
        assert len(kept) <= 6
        assert kept[-1]["addr"] == last.data_ptr()


def test_a_history_is_cleared_on_demand_only() -> None:
    with recorded():
        a = block(3)
        torch.cuda.memory._record_memory_history(stacks="python")
        assert len(allocations()) == 1
        torch.cuda.memory._record_memory_history(stacks="python", clear_history=True)
        assert allocations() == []
        b = block(3)
        assert [event["addr"] for event in allocations()] == [b.data_ptr()]
    del a


def test_a_state_has_frames_and_no_history() -> None:
    with recorded("state"):
        held = make_it()
        assert names(block_of(held)["frames"])[0] == "make_it"
        assert allocations() == []


def test_whether_a_history_is_recorded_is_known() -> None:
    assert not C._cuda_isHistoryEnabled()
    with recorded():
        assert C._cuda_isHistoryEnabled()
    assert not C._cuda_isHistoryEnabled()


def test_events_of_devices_are_apart() -> None:
    with recorded():
        on_first, on_second = block(3), block(5, "cuda:1")
        assert [event["size"] for event in allocations(0)] == [3 * MIB]
        assert [event["size"] for event in allocations(1)] == [5 * MIB]
    assert on_first.device != on_second.device


def test_running_out_is_an_event() -> None:
    with recorded():
        with pytest.raises(torch.OutOfMemoryError):
            block(1 << 22)
        (event,) = (event for event in events() if event["action"] == "oom")
    assert event["size"] == 1 << 42
    assert event["device_free"] == torch.cuda.mem_get_info()[0]


def test_taking_a_snapshot_is_an_event() -> None:
    with recorded():
        snapshot()
        snapshot()
        traces = snapshot()["device_traces"][0]
    assert [event["action"] for event in traces] == ["snapshot"] * 2


def test_what_the_program_says_changes_from_event_to_event() -> None:
    with recorded():
        for text in ("first", "second", ""):
            torch.cuda.memory._set_memory_metadata(text)
            block(3)
        said = [event["user_metadata"] for event in allocations()]
    assert said == ["first", "second", ""]


def test_no_compilation_is_told_as_pytorch_does() -> None:
    with recorded(compile_context=True):
        block(3)
        found = {event["compile_context"] for event in events()}
    assert found == {"N/A"}


def test_what_a_profiler_notes_stands_beside_the_events() -> None:
    with recorded(global_record_annotations=True):
        with torch.profiler.record_function("## a part ##"):
            block(3)
        notes = snapshot()["external_annotations"]
    assert [(note["name"], note["stage"]) for note in notes] == [
        ("## a part ##", "START"),
        ("## a part ##", "END"),
    ]
    assert notes[0]["time_us"] <= notes[1]["time_us"]


# ---- segments and blocks


def fill() -> list[torch.Tensor]:
    """Return tensors of many sizes with holes between them, on both devices."""
    sizes = [0.0001, 0.6, 3, 12, 0.7, 40, 1, 1.0001] * 2
    return [block(mib, device) for device in ("cuda:0", "cuda:1") for mib in sizes][::2]


@pytest.mark.parametrize("device", [0, 1])
def test_segments_add_up_to_the_statistics(device: int) -> None:
    held = fill()
    segments = snapshot()["segments"]
    total = sums(segments, device)
    wanted = statistics(total, device)
    for name in ("inactive_split", "inactive_split_bytes"):  # as expandable segments count them
        total.pop(name)
        wanted.pop(name)
    assert total == wanted
    assert total["allocation"] == len(held) // 2
    assert tiling_faults(segments) == []
    mine = [segment for segment in segments if segment["device"] == device]
    assert sum(part["total_size"] for part in mine) == torch.cuda.memory_reserved(device)
    assert sum(part["allocated_size"] for part in mine) == torch.cuda.memory_allocated(device)


def test_segments_are_sorted_by_their_addresses() -> None:
    held = fill()
    segments = snapshot()["segments"]
    for device in (0, 1):
        addresses = [part["address"] for part in segments if part["device"] == device]
        assert addresses == sorted(addresses)
    assert len(held) == 16


def test_memory_lent_to_a_stream_waits_to_be_freed() -> None:
    side = torch.cuda.Stream()
    allocated, active = torch.cuda.memory_allocated(), stat("active_bytes.all.current")
    with control.paced("manual"):
        lent = block(8)
        address = lent.data_ptr()
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent

        def states() -> set[str]:
            return {
                part["state"]
                for segment in snapshot()["segments"]
                for part in segment["blocks"]
                if part["address"] == address
            }

        assert states() == {"active_pending_free"}
        assert torch.cuda.memory_allocated() == allocated
        assert stat("active_bytes.all.current") == active + 8 * MIB
        advance_all(side)
    torch.cuda.synchronize()


def test_a_block_tells_what_was_asked_for() -> None:
    held = torch.empty(3 * MIB + 1, dtype=torch.uint8, device="cuda")
    found = block_of(held)
    assert found["requested_size"] == 3 * MIB + 1
    assert found["size"] >= 3 * MIB + 512
    assert found["state"] == "active_allocated"


def test_a_segment_tells_the_stream_that_it_is_for() -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        held = block(30)
    (segment,) = (part for part in snapshot()["segments"] if holds(part, held))
    assert segment["stream"] == side.cuda_stream
    assert segment["segment_type"] == "large"


def test_the_snapshot_of_a_pool_is_of_it_alone() -> None:
    pool = torch.cuda.MemPool()
    outside = block(30)
    with torch.cuda.use_mem_pool(pool):
        inside = block(20)
    found = pool.snapshot()
    assert {tuple(segment["segment_pool_id"]) for segment in found} == {pool.id}
    assert [segment["address"] for segment in found] == [inside.data_ptr()]
    for tensor in (inside, outside):
        assert sum(holds(segment, tensor) for segment in snapshot()["segments"]) == 1
    assert len(found) == len(segments_of(pool.id))


# ---- drawing, comparing, keeping


def test_a_history_is_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    with recorded():
        held = make_it()
        torch.cuda.memory._dump_snapshot(str(path))
    with path.open("rb") as file:
        found = pickle.load(file)
    assert set(found) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}
    text = json.dumps(found)
    assert "make_it" in text
    assert str(held.data_ptr()) in text


def test_a_file_is_drawn_in_each_way(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    with recorded():
        held = [make_it(), block(30)]
        held.pop()
        torch.cuda.memory._dump_snapshot(str(path))
    with path.open("rb") as file:
        found = pickle.load(file)
    for page in (viz.segment_plot(found), viz.trace_plot(found)):
        assert "MemoryViz" in page or "<html" in page
    assert "# free completed for" in viz.trace(found)
    assert "make_it" in viz.memory(found, format_flamegraph=str)
    assert "make_it" in viz.segments(found, format_flamegraph=str)


def test_two_snapshots_are_compared() -> None:
    with recorded():
        held = [block(30)]
        before = snapshot()
        held.append(block(50))
        after = snapshot()
    page = viz.compare(before["segments"], after["segments"], format_flamegraph=str)
    added = [line for line in page.splitlines() if line.startswith("only_after")]
    assert any(line.endswith(f" {50 * MIB}") for line in added)


def test_a_walk_through_a_recorded_history_ends_with_what_lives() -> None:
    with recorded():
        held = [block(mib) for mib in (3, 30, 0.5)]
        del held[1]
        live: dict[int, int] = {}
        for event in events():
            if event["action"] == "alloc":
                assert event["addr"] not in live
                live[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                live.pop(event["addr"])
    assert set(live) == {tensor.data_ptr() for tensor in held}


def test_a_history_of_a_capture_names_the_graphs_memory() -> None:
    graph = torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    with recorded():
        with torch.cuda.graph(graph, pool=pool):
            held = make_it().fill_(1)
        found = block_of(held)
        assert names(found["frames"])[0] == "make_it"
        assert held.data_ptr() in {event["addr"] for event in allocations()}
    graph.replay()
    torch.cuda.synchronize()
