"""What PyTorch's own tests ask for, in native mode, and what of it does not hold.

The tests are those of `test_pytorch_memory.py`, `test_pytorch_graphs.py` and
`test_pytorch_mempool.py`, which hold of PyTorch itself. LIMITS names all that do not hold here.
"""

from __future__ import annotations

import pytest
from tests.standin import suites

LIMITS = {
    "test_the_pieces_of_segments_are_counted": "segments are pieces of physical memory",
    "test_sizes_are_rounded_as_a_setting_says": "settings of a running program do not reach lakes",
}
FILES = ("test_pytorch_memory", "test_pytorch_graphs", "test_pytorch_mempool")


@pytest.fixture(scope="module")
def tested() -> suites.Tested:
    return suites.finish(suites.start(*FILES, run=("--mode", "native", "--report")))


def test_what_holds_of_pytorch_holds_in_native_mode(tested: suites.Tested) -> None:
    suites.check(tested, LIMITS)
    assert len(tested.passed) >= 75
    assert "device 0, native mode: " in tested.text  # gmlake did serve
