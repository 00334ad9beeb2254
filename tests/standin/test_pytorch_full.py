"""What PyTorch's own tests ask for, while gmlake is PyTorch's allocator, in full mode.

The tests are those of `test_pytorch_memory.py` and `test_pytorch_graphs.py`, which hold of PyTorch
itself. LIMITS names all that do not hold here: each runs, and must fail. torch.cuda.MemPool and
thus `test_pytorch_mempool.py` are not possible at all, which `test_enabled_memory.py` looks at.
"""

from __future__ import annotations

import pytest
from tests.standin import suites

STACKS = "no stack trace is taken where memory is served"
TREES = "PyTorch saves and restores the pools of its own allocator only"
LIMITS = {
    "test_without_caching_nothing_is_counted": "gmlake cannot do without a cache",
    "test_the_pieces_of_segments_are_counted": "segments are pieces of physical memory",
    "test_sizes_are_rounded_as_a_setting_says": "settings of a running program do not reach it",
    "test_an_observer_is_told_of_the_end": "PyTorch offers no hook to attach observers",
    "test_events_tell_where_they_come_from[alloc]": STACKS,
    "test_events_tell_where_they_come_from[all]": STACKS,
    "test_blocks_tell_where_they_come_from": STACKS,
    "test_stacks_are_kept_while_they_are_wanted": STACKS,
    "test_events_carry_what_the_program_says": STACKS,
    "test_the_profiler_sees_memory": "PyTorch's allocators call the profiler, not PyTorch",
    "test_memory_of_all_streams_of_a_capture_is_in_its_pool": "snapshots do not name pools",
    "test_memory_lent_within_a_capture_is_used_again_after_the_join[1]": "a setting, as above",
    "test_memory_lent_within_a_capture_is_used_again_after_the_join[3]": "a setting, as above",
    "test_the_live_tensors_of_a_pool_are_known": TREES,
    "test_one_thread_allocates_in_the_pool_of_a_graph": TREES,
}
# PyTorch's own algorithm on top of gmlake's driver, not in it, has PyTorch's segments.
KNOWN = {"stitch": (), "caching": ("test_the_pieces_of_segments_are_counted",)}


@pytest.fixture(scope="module")
def tested() -> dict[str, suites.Tested]:
    """Run the tests under each policy, all at once."""
    started = {
        policy: suites.start(
            "test_pytorch_memory", "test_pytorch_graphs", run=("--mode", "full", "--policy", policy)
        )
        for policy in KNOWN
    }
    return {policy: suites.finish(process) for policy, process in started.items()}


@pytest.mark.parametrize("policy", KNOWN)
def test_what_holds_of_pytorch_holds_in_full_mode(
    tested: dict[str, suites.Tested], policy: str
) -> None:
    limits = {name: why for name, why in LIMITS.items() if name not in KNOWN[policy]}
    suites.check(tested[policy], limits)
    assert len(tested[policy].passed) >= 45
