"""What PyTorch's own tests ask for, in native mode, and what of it does not hold.

The tests are those of `test_pytorch_*.py`, which hold of PyTorch itself. LIMITS names all that do
not hold here.
"""

from __future__ import annotations

import pytest
from tests.standin import suites

LIMITS = {
    # Segments of private pools, asserted in PyTorch's own sizes and places:
    # Idle memory of a pool that returns, on empty_cache() and before a refusal:
    "test_emptying_the_cache_outside_leaves_an_idle_pool_alone": "the pool keeps 20 MiB: here none",
    # What is not refused here, and what is not done:
}
# The files of a process, and how many tests they have at least.
FILES = {
    ("memory", "graphs", "snapshots"): 1,
    ("interface", "pools", "observers", "sharing"): 1,
}


@pytest.mark.parametrize("files", FILES, ids=" ".join)
def test_what_holds_of_pytorch_holds_in_native_mode(files: tuple[str, ...]) -> None:
    names = [f"test_pytorch_{name}" for name in files]
    tested = suites.finish(suites.start(*names, run=("--report",)))
    all_tests = tested.passed | tested.failed
    suites.check(tested, {name: why for name, why in LIMITS.items() if name in all_tests})
    assert len(tested.passed) >= FILES[files]
    assert "device 0: " in tested.text  # gmlake did serve
