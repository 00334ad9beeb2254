"""What PyTorch's own tests ask of snapshots and recorded histories, in our words.

See test_pytorch_memory.py, which asks for the plainer part of it.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.standin.asking import (
    MIB,
    C,
    advance_all,
    block,
    block_of,
    events,
    recorded,
    snapshot,
)

from gmlake.standin import control


def actions(device: int = 0) -> list[str]:
    """Return the recorded actions on blocks."""
    of_segments = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
    return [event["action"] for event in events(device) if event["action"] not in of_segments]


def allocations(device: int = 0) -> list[dict[str, Any]]:
    return [event for event in events(device) if event["action"] == "alloc"]


def make_it() -> torch.Tensor:
    return torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")


def names(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["name"] for frame in frames]


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


def test_running_out_is_an_event() -> None:
    with recorded():
        with pytest.raises(torch.OutOfMemoryError):
            block(1 << 22)
        (event,) = (event for event in events() if event["action"] == "oom")
    assert event["size"] == 1 << 42
    assert event["device_free"] == torch.cuda.mem_get_info()[0]


# ---- segments and blocks


def fill() -> list[torch.Tensor]:
    """Return tensors of many sizes with holes between them, on both devices."""
    sizes = [0.0001, 0.6, 3, 12, 0.7, 40, 1, 1.0001] * 2
    return [block(mib, device) for device in ("cuda:0", "cuda:1") for mib in sizes][::2]


def test_segments_are_sorted_by_their_addresses() -> None:
    held = fill()
    segments = snapshot()["segments"]
    for device in (0, 1):
        addresses = [part["address"] for part in segments if part["device"] == device]
        assert addresses == sorted(addresses)
    assert len(held) == 16
