"""What PyTorch's own tests ask for, in native mode, and what of it does not hold.

The tests are those of `test_pytorch_*.py`, which hold of PyTorch itself. LIMITS names all that do
not hold here.
"""

from __future__ import annotations

import pytest
from tests.standin import suites
from tests.standin.launcher import ROOT

LIMITS = {
    "test_the_pieces_of_segments_are_counted": "segments are pieces of physical memory",
    "test_a_segment_tells_the_stream_that_it_is_for": "memory of a lake serves every stream",
    "test_a_free_that_waits_for_a_stream_completes_later": "a lake looks when it needs the memory",
}
# The files of a process, and how many tests they have at least.
FILES = {
    ("memory", "graphs", "mempool"): 75,
    ("trees", "snapshots", "observers"): 75,
    ("interface", "pools", "profiler", "sharing", "streams"): 105,
}


@pytest.mark.parametrize("files", FILES, ids=" ".join)
def test_what_holds_of_pytorch_holds_in_native_mode(files: tuple[str, ...]) -> None:
    names = [f"test_pytorch_{name}" for name in files]
    tested = suites.finish(suites.start(*names, run=("--report",)))
    all_tests = tested.passed | tested.failed
    suites.check(tested, {name: why for name, why in LIMITS.items() if name in all_tests})
    assert len(tested.passed) >= FILES[files]
    assert "device 0: " in tested.text  # gmlake did serve


def test_what_does_not_hold_is_asked_for() -> None:
    texts = [
        (ROOT / suites.FOLDER / f"test_pytorch_{name}.py").read_text(encoding="utf-8")
        for files in FILES
        for name in files
    ]
    for name in LIMITS:
        assert sum(f"def {name}(" in text for text in texts) == 1
