"""Statistics, snapshots and recorded history under each of PyTorch's own allocators."""

# mypy: allow-untyped-calls

from __future__ import annotations

import re

import pytest
from tests.standin.running import run_program


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
