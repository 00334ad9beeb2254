"""What PyTorch's own tests ask of snapshots and recorded histories, in our words.

See test_pytorch_memory.py, which asks for the plainer part of it.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

from typing import Any

import torch
from tests.standin.asking import (
    MIB,
    C,
    advance_all,
    block,
    block_of,
    events,
    recorded,
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
