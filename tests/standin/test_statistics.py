"""Statistics, snapshots and recorded history under each of PyTorch's own allocators."""

# mypy: allow-untyped-calls

from __future__ import annotations

import pickle
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import requested_after, statistics, sums, tiling_faults
from tests.standin.running import run_program
from tests.standin.training import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def _history() -> Iterator[None]:
    torch.cuda.memory._record_memory_history(max_entries=100_000)  # noqa: SLF001 (its only name)
    yield
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001


def fill(device: int) -> list[torch.Tensor]:
    """Return tensors of many sizes, with holes between them and caches beside them."""
    sizes = [100, 5000, 600_000, 3 * MIB, 12 * MIB, 700, 40 * MIB, 1 * MIB, 1 * MIB + 1]
    tensors = [torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}") for size in sizes * 3]
    return tensors[::2]


@pytest.mark.parametrize("device", [0, 1])
def test_a_snapshot_adds_up_to_the_statistics(device: int) -> None:
    tensors = fill(device)
    segments = torch.cuda.memory_snapshot()
    total = sums(segments, device)
    assert total == statistics(total, device)
    assert total["allocation"] == len(tensors)
    assert total["requested_bytes"] == sum(tensor.numel() for tensor in tensors)
    assert total["inactive_split_bytes"] > 0
    assert tiling_faults(segments) == []
    stats = torch.cuda.memory_stats(device)
    assert stats["segment.all.current"] == sum(s["device"] == device for s in segments)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    assert total["reserved_bytes"] <= total_bytes - free_bytes


def test_memory_summary_tells_the_same() -> None:
    tensors = fill(0)
    text = torch.cuda.memory_summary()
    short = torch.cuda.memory_summary(abbreviated=True)
    assert "PyTorch CUDA memory summary, device ID 0" in text
    assert len(short) < len(text)
    count = torch.cuda.memory_stats()["allocation.all.current"]
    (line,) = (line for line in text.splitlines() if line.startswith("| Allocations "))
    assert line.split("|")[2].strip() == str(count) == str(len(tensors))


@pytest.mark.usefixtures("_history")
def test_a_recorded_history_leads_to_what_is_allocated(tmp_path: Path) -> None:
    trainer = Trainer()
    trainer.step()
    trainer.step()
    path = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))  # noqa: SLF001 (its only name)
    with path.open("rb") as file:
        snapshot: dict[str, Any] = pickle.load(file)

    assert set(snapshot) >= {"segments", "device_traces", "allocator_settings"}
    assert not snapshot["allocator_settings"]["expandable_segments"]
    events = snapshot["device_traces"][0]
    actions = Counter(event["action"] for event in events)
    assert actions["segment_alloc"] == len(snapshot["segments"])
    assert actions["alloc"] > 500
    assert actions["free_requested"] == actions["free_completed"]
    stats = torch.cuda.memory_stats()
    assert requested_after(events) == stats["requested_bytes.all.current"]
    assert actions["alloc"] - actions["free_completed"] == stats["allocation.all.current"]
    assert any("training.py" in frame["filename"] for frame in events[-1]["frames"])


@pytest.mark.usefixtures("_history")
def test_history_tells_of_segments_that_are_given_back() -> None:
    large = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    address = large.data_ptr()
    del large
    torch.cuda.empty_cache()
    events = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001 (its only name)
    scenario = [event["action"] for event in events if event.get("addr") == address]
    assert scenario == [
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "segment_free",
    ]


def test_expandable_segments() -> None:
    outcome = run_program("allocator", allocator="expandable_segments:True")
    results = outcome.results
    assert outcome.code == 0, outcome.errors
    assert results["backend"] == "native"
    assert results["sums"] == results["statistics"]
    assert results["sums"]["allocated_bytes"] > 0
    assert results["tiling_faults"] == []
    assert results["is_expandable"]
    assert results["settings"]["expandable_segments"]
    assert results["actions"]["segment_map"] > 0
    assert "segment_alloc" not in results["actions"]
    assert results["requested_after"] == results["statistics"]["requested_bytes"]
    calls = results["calls"]
    for name in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        assert calls[name] > 0
    assert "cudaMalloc" not in calls
    assert results["steady_calls"] == {}
    assert results["allocated"][0] == results["allocated"][1]
    assert calls["cuMemUnmap"] == calls["cuMemMap"]
    assert results["actions_at_end"]["segment_unmap"] > 0
    assert results["reserved_at_end"] == [0, 0]
    assert results["lost_bytes"] == 0
    assert "Tried to allocate 100.00 GiB" in results["refusal"]
    assert "total capacity of 80.00 GiB" in results["refusal"]
    assert results["graph_pool_bytes"] > 0


@pytest.mark.long
def test_the_asynchronous_allocator_of_cuda() -> None:
    outcome = run_program("allocator", allocator="backend:cudaMallocAsync")
    results = outcome.results
    assert outcome.code == 0, outcome.errors
    assert results["backend"] == "cudaMallocAsync"
    assert results["calls"]["cudaMallocAsync"] > 0
    assert "cudaMalloc" not in results["calls"]
    assert results["steady_calls"]["cudaMallocAsync"] == results["steady_calls"]["cudaFreeAsync"]
    assert results["allocated"][0] == results["allocated"][1] > 0
    assert results["reserved"] >= results["allocated"][1]
    assert results["reserved_at_end"] == [0, 0]
    assert results["lost_bytes"] == 0
    assert re.search(r"Requested +: 100\.00 GiB\n", results["refusal"])
    assert re.search(r"Device limit +: 80\.00 GiB\n", results["refusal"])
    # PyTorch says so itself: it tracks no blocks under this allocator.
    assert "snapshot with backend:cudaMallocAsync is not meaningful" in results["no_snapshot"]
    assert "does not yet support recordHistory" in results["no_history"]
