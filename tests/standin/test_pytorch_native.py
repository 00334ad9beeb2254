"""What PyTorch's own tests ask for, in native mode, and what of it does not hold.

The tests are those of `test_pytorch_*.py`, which hold of PyTorch itself. LIMITS names all that do
not hold here.
"""

from __future__ import annotations

import pytest
from tests.standin import suites

LIMITS = {
    "test_the_pieces_of_segments_are_counted": "segments are pieces of physical memory",
    "test_a_segment_tells_the_stream_that_it_is_for": "memory of a lake serves every stream",
    # Segments of private pools, asserted in PyTorch's own sizes and places:
    "test_a_graph_reserves_what_its_capture_needed[1049088-large_pool-1-20]": "20 MiB: here 4",
    "test_a_graph_reserves_what_its_capture_needed[10485248-large_pool-2-20]": "40 MiB: here 30",
    "test_a_graph_reserves_what_its_capture_needed[10486272-large_pool-3-12]": "36 MiB: here 32",
    "test_memory_of_all_streams_of_a_capture_is_in_its_pool": "one segment for each stream",
    "test_one_thread_allocates_in_the_pool_of_a_graph": "four segments of 20 MiB: one range here",
    "test_blocks_of_a_pool_need_not_be_split": "a third block, what is left of 20 MiB: none here",
    "test_the_pool_that_was_entered_last_serves": "segments of 20 MiB: one range here",
    "test_the_base_of_a_pools_tensor_is_where_its_segment_begins": "a segment of 20 MiB",
    "test_memory_of_a_pool_is_counted_with_the_rest": "two segments: here pieces of memory",
    "test_memory_of_a_pool_stays_for_its_stream": "a segment for each stream, by the snapshot",
    "test_many_pools_come_and_go": "20 MiB for each tensor of 4 MiB: here 4",
    # Idle memory of a pool that returns, on empty_cache() and before a refusal:
    "test_a_pool_may_help_out_where_memory_ends": "a refusal; it is served here",
    "test_emptying_the_cache_outside_leaves_an_idle_pool_alone": "the pool keeps 20 MiB: here none",
    # What is not refused here, and what is not done:
    "test_memory_of_a_pool_is_shared_as_pytorchs": "a refusal to share it; it is shared here",
    "test_memory_lent_within_a_capture_is_used_again_after_the_join[1]": "by its end only, here",
    "test_memory_lent_within_a_capture_is_used_again_after_the_join[3]": "by its end only, here",
}
# The files of a process, and how many tests they have at least.
FILES = {
    ("memory", "graphs", "mempool"): 67,
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
