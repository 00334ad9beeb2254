"""What PyTorch's own tests ask for, in native mode, and what of it does not hold.

The tests are those of `test_pytorch_*.py`, which hold of PyTorch itself. LIMITS names all that do
not hold here.
"""

from __future__ import annotations

import pytest
from tests.standin import suites

LIMITS = {
    "test_a_graph_reserves_what_its_capture_needed[1049088-large_pool-1-20]": "20 MiB: here 4",
    "test_a_graph_reserves_what_its_capture_needed[10485248-large_pool-2-20]": "40 MiB: here 30",
    "test_a_graph_reserves_what_its_capture_needed[10486272-large_pool-3-12]": "36 MiB: here 32",
}
# The files of a process, and how many tests they have at least.
FILES = {
    ("memory", "graphs", "mempool", "snapshots"): 28,
    ("interface", "pools", "observers", "profiler", "sharing", "streams"): 26,
}


@pytest.mark.parametrize("files", FILES, ids=" ".join)
def test_what_holds_of_pytorch_holds_in_native_mode(files: tuple[str, ...]) -> None:
    names = [f"test_pytorch_{name}" for name in files]
    tested = suites.finish(suites.start(*names, run=("--report",)))
    all_tests = tested.passed | tested.failed
    suites.check(tested, {name: why for name, why in LIMITS.items() if name in all_tests})
    assert len(tested.passed) >= FILES[files]
    assert ", device 0" in tested.text  # gmlake did serve
