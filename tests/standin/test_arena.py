"""PyTorch served from one allocation, with virtual memory management and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.running import run_program

if TYPE_CHECKING:
    from pathlib import Path

GIB, MIB = 1 << 30, 1 << 20
VIRTUAL = ("cuMemMap", "cuMemAddressReserve", "cuMemSetAccess")


def run(*arguments: str, has_vmm: bool = True) -> dict[str, Any]:
    settings = ("--capacity", "80GiB", *(() if has_vmm else ("--without-vmm",)))
    outcome = run_program("arena", *arguments, settings=settings)
    assert outcome.code == 0, outcome.errors
    return outcome.results


@pytest.mark.parametrize(
    ("capacity", "arena", "has_vmm"),
    [("", "2GiB", True), ("", "2GiB", False), ("2GiB", "", False)],
    ids=["asked for", "asked for without vmm", "chosen by itself"],
)
def test_training_lies_in_one_allocation(capacity: str, arena: str, *, has_vmm: bool) -> None:
    seen = run("train", capacity, arena, has_vmm=has_vmm)
    assert seen["policy"] == "stitch"
    assert seen["arena"][1] == 2 * GIB
    assert seen["is_inside"]
    assert not any(seen["asked"].get(call) for call in VIRTUAL)
    assert seen["asked"]["cuMemAlloc_v2"] == 1
    assert sum(seen["calls"].get(call, 0) for call in ("create", "map", "reserve", "malloc")) == 0
    assert 0 < seen["stats"]["reserved_bytes"] < 2 * GIB
    if capacity:
        assert "serves GPU 0 from one allocation of 2.00 GiB" in seen["refusal"]
    else:
        assert not seen["refusal"]  # PyTorch's own allocator has the rest of the device
    assert seen["is_whole_after"]


def test_a_loaded_plan_needs_what_was_planned_and_what_lasts(tmp_path: Path) -> None:
    path = str(tmp_path / "step.gmplan")
    planned = run("plan", path)
    assert planned["is_inside"]
    peak = planned["stats"]["peak_reserved_bytes"]
    seen = run("loaded", path, str(peak + 16 * MIB))
    assert seen["is_inside"]
    assert min(seen["hits"][1:]) == 1
    assert seen["stats"]["peak_reserved_bytes"] <= peak + 16 * MIB


def test_what_is_freed_at_the_end_is_held_no_more() -> None:
    assert run("freed")["held"] == [400 * MIB, 100 * MIB, 0]
