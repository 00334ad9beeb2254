"""What PyTorch's own tests ask for, while gmlake serves pools of torch.cuda, in pool mode.

The tests are those of the other files `test_pytorch_*.py`. Where something does not hold, a table
says why; each of these tests runs, and must fail.
"""

from __future__ import annotations

import pytest
from tests.standin import gmlake_run, suites

EVENTS = "PyTorch takes an open pool for a capture, and asks for no event before it is replaced"
LIMITS = {
    "test_emptying_the_cache_waits_once": "each pool is given back by itself, and waits",
    "test_memory_lent_to_a_stream_is_not_used_before_it_is_done": EVENTS,
    "test_memory_that_other_streams_hold_up_is_waited_for": EVENTS,
}
OUTSIDE = "a request outside of the program's pools goes to one of gmlake's, not to the default"
MEMPOOL_LIMITS = {
    "test_a_pool_that_ends_gives_its_memory_back": "it waits until no pool is open, see pool.py",
    "test_a_pool_may_help_out_where_memory_ends": OUTSIDE,
    "test_a_pool_that_is_gone_helps_nobody": OUTSIDE,
    "test_segments_of_a_pool_with_an_allocator_do_not_grow": OUTSIDE,
}
OURS = {"GMLAKE_TEST_POOLS": "gmlake"}
POOL = ("--mode", "pool")
LAST = """
import torch
kept, gone = torch.cuda.MemPool(), torch.cuda.MemPool()
del gone
with torch.cuda.use_mem_pool(kept):
    tensor = torch.empty(10, device="cuda")
    torch.cuda.empty_cache()
    other = torch.empty(10, device="cuda")
print(tensor.untyped_storage().data_ptr() + 512 - other.data_ptr())
"""


@pytest.fixture(scope="module")
def tested() -> dict[str, suites.Tested]:
    """Run all at once: everything, pools of the program on gmlake, and these without a region."""
    started = {
        "region": suites.start(
            *("test_pytorch_memory", "test_pytorch_graphs", "test_pytorch_mempool"), run=POOL
        ),
        "both": suites.start("test_pytorch_mempool", run=POOL, variables=OURS),
        "pools": suites.start("test_pytorch_mempool", run=(), variables=OURS),
    }
    return {name: suites.finish(process) for name, process in started.items()}


def test_what_holds_of_pytorch_holds_in_pool_mode(tested: dict[str, suites.Tested]) -> None:
    suites.check(tested["region"], LIMITS | MEMPOOL_LIMITS)
    assert len(tested["region"].passed) >= 70


def test_a_program_has_pools_on_gmlake_within_a_region(tested: dict[str, suites.Tested]) -> None:
    suites.check(tested["both"], MEMPOOL_LIMITS)
    assert len(tested["both"].passed) >= 12


def test_what_holds_of_pools_holds_of_pools_on_gmlake(tested: dict[str, suites.Tested]) -> None:
    suites.check(tested["pools"], {})
    assert len(tested["pools"].passed) >= 16


def test_a_program_may_end_with_pools_and_tensors() -> None:
    ended = gmlake_run.run(*gmlake_run.RUN, *POOL, "-c", LAST, settings=suites.SETTINGS)
    assert (ended.code, ended.output) == (0, "0\n"), ended.errors
