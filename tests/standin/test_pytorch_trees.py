"""What PyTorch's own tests ask of the pools that graph trees keep, in our words.

Trees record graphs one behind another in one pool. They save what the pool holds after each, and
put it back before another is recorded there.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.asking import MIB, C, block, holds, segments_of, snapshot
from tests.standin.training import memory_calls

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

with warnings.catch_warnings():  # of what PyTorch itself has deprecated
    warnings.simplefilter("ignore")
    from torch._inductor import config
    from torch._inductor.cudagraph_trees import cudagraphify_impl, get_container


@pytest.fixture(autouse=True)
def _ends_without_trees(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the trees check themselves at each step, and end them."""
    failed = request.session.testsfailed
    with warnings.catch_warnings(), config.patch({"triton.slow_path_cudagraph_asserts": True}):
        warnings.simplefilter("ignore")
        yield
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    assert [get_container(device).tree_manager for device in (0, 1)] == [None, None]
    if request.session.testsfailed == failed:  # what failed is kept alive by its traceback
        assert private_segments() == []


def private_segments() -> list[dict[str, Any]]:
    return [part for part in snapshot()["segments"] if part["segment_pool_id"] != (0, 0)]


def live_blocks() -> int:
    """Return how many tensors live in private pools."""
    return sum(
        part["state"] == "active_allocated"
        for segment in private_segments()
        for part in segment["blocks"]
    )


def in_graphs(work: Any, inputs: list[Any], device: int = 0) -> Any:
    """Return a function that runs as graphs of the device's tree."""
    return cudagraphify_impl(
        work, inputs, (), device_index=device, is_inference=True, is_backward=False
    )


def manager(device: int = 0) -> Any:
    return get_container(device).tree_manager


def two_results(inputs: list[Any]) -> Sequence[torch.Tensor]:
    """Return two tensors with memory of their own."""
    x = inputs[0]
    inputs.clear()
    return x + 1, x + 2


def one_result(inputs: list[Any]) -> Sequence[torch.Tensor]:
    x = inputs[0]
    inputs.clear()
    return [x * x * x]


def two_views(inputs: list[Any]) -> Sequence[torch.Tensor]:
    """Return two views of one result."""
    x = inputs[0]
    inputs.clear()
    y = x + 1
    return y[0], y[1]


def numbers(*shape: int, device: str = "cuda") -> torch.Tensor:
    return torch.zeros(shape, device=device)


def test_a_tree_is_warmed_up_then_recorded_then_replayed() -> None:
    x = numbers(1000)
    run = in_graphs(one_result, [x])
    launches, places = [], []
    for _ in range(4):
        control.reset_calls()
        (y,) = run([x])
        launches.append(control.calls()["cudaGraphLaunch"])
        places.append(y.data_ptr())
        del y
    assert launches == [0, 1, 1, 1]
    assert len(set(places[1:])) == 1
    (node,) = manager().get_roots()
    assert node.num_descendants() == 0


def test_a_replay_asks_for_no_memory() -> None:
    x = numbers(1000)
    run = in_graphs(two_results, [x])
    for _ in range(3):
        run([x])
    reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    control.reset_calls()
    for _ in range(5):
        run([x])
    assert memory_calls(control.calls()) == {}
    assert (torch.cuda.memory_reserved(), torch.cuda.memory_allocated()) == (reserved, allocated)


def test_results_lie_in_the_pool_and_inputs_outside() -> None:
    x = numbers(1000)
    run = in_graphs(two_results, [x])
    for _ in range(2):
        a, b = run([x])
    segments = private_segments()
    assert len({part["segment_pool_id"] for part in segments}) == 1
    for result in (a, b):
        assert any(holds(segment, result) for segment in segments)
    assert not any(holds(segment, x) for segment in segments)
    assert live_blocks() == 2


@pytest.mark.parametrize("calls", [1, 2])
def test_a_result_lives_until_it_is_dropped(calls: int) -> None:
    with config.patch({"triton.skip_cudagraph_warmup": True}):
        x = numbers(1000)
        run = in_graphs(one_result, [x])
        for _ in range(calls):
            run([x])
        inputs_only = live_blocks()
        (y,) = run([x])
        node = manager().current_node
        assert len(list(node.path_live_weakrefs())) == 1
        view = y[3:]
        del y
        assert len(list(node.path_live_weakrefs())) == 1
        del view
        assert len(list(node.path_live_weakrefs())) == 0
        assert live_blocks() == inputs_only


def test_a_tensor_that_dies_between_two_recordings_is_freed_in_what_is_put_back() -> None:
    with config.patch({"triton.skip_cudagraph_warmup": True}):
        x = numbers(4)
        first = in_graphs(two_results, [x])
        first([x])
        first([x])
        kept, dying = first([x])
        inputs = [kept]
        del kept, dying
        assert manager().debug_checkpointing_counter == 0
        second = in_graphs(one_result, inputs)
        (y,) = second(inputs)
        assert manager().debug_checkpointing_counter == 1
        assert live_blocks() == 1
        del y
        assert live_blocks() == 0


def test_two_results_in_one_storage_are_freed_with_the_last() -> None:
    with config.patch({"triton.skip_cudagraph_warmup": True}):
        x = numbers(2, 2)
        first = in_graphs(two_views, [x])
        first([x])
        first([x])
        a, b = first([x])
        inputs = [a]
        second = in_graphs(two_views, inputs)
        second(inputs)
        assert manager().debug_checkpointing_counter == 1
        assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        assert live_blocks() == 1
        del a
        assert live_blocks() == 1
        del b
        assert live_blocks() == 0


def test_an_input_that_moved_makes_a_second_branch() -> None:
    with config.patch({"triton.skip_cudagraph_warmup": True}):
        x = numbers(4)
        first = in_graphs(two_results, [x])
        a, b = first([x])
        second = in_graphs(one_result, [a])
        second([a])
        del a, b
        a, _ = first([x])
        assert manager().debug_checkpointing_counter == 0
        second([torch.zeros_like(a)])
        assert manager().debug_checkpointing_counter == 1
        (root,) = manager().get_roots()
        assert root.num_descendants() == 2


def test_each_device_has_a_tree_of_its_own() -> None:
    x = numbers(20, device="cuda:1")
    run = in_graphs(one_result, [x], device=1)
    for _ in range(3):
        (y,) = run([x])
    assert manager(0) is None
    assert manager(1) is not None
    assert {segment["device"] for segment in private_segments()} == {1}
    assert y.device.index == 1


def test_each_number_of_an_input_is_recorded_once() -> None:
    seen = []

    def work(inputs: list[Any]) -> Sequence[torch.Tensor]:
        size, x = inputs
        inputs.clear()
        seen.append(size)
        return (x * 2,)

    run = in_graphs(work, [2, numbers(2)])
    for size in (2, 2, 2, 3, 3, 3, 2):
        run([size, numbers(size)])
    assert seen == [2, 2, 3, 3]


def test_large_results_of_many_recordings_share_the_pool() -> None:
    x = numbers(2 * MIB)  # 8 MiB
    runs = [in_graphs(one_result, [x]) for _ in range(4)]
    for _ in range(3):
        for run in runs:
            (y,) = run([x])
            del y
    reserved = sum(part["total_size"] for part in private_segments())
    assert 8 * MIB <= reserved <= 4 * 40 * MIB
    assert len({part["segment_pool_id"] for part in private_segments()}) == 1


def test_a_compiled_function_trains_through_a_tree() -> None:
    weight = torch.nn.Parameter(numbers(64, 64))

    @torch.compile(backend="cudagraphs")
    def work(x: torch.Tensor) -> torch.Tensor:
        return (x * weight).relu()

    allocated = []
    for _ in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        work(numbers(64, 64)).sum().backward()
        weight.grad = None
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[-1] == allocated[-2] == allocated[-3]
    assert not manager().running_forwards_with_pending_backwards
    assert private_segments()


def test_a_result_that_was_overwritten_is_not_read() -> None:
    @torch.compile(backend="cudagraphs")
    def work(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    x = numbers(4)
    first = work(x)
    second = work(x)
    with pytest.raises(RuntimeError, match="overwritten by a subsequent run"):
        first + first
    work(x)
    with pytest.raises(RuntimeError, match="overwritten by a subsequent run"):
        second + second


def test_memory_ends_while_a_tree_is_recorded_and_it_goes_on() -> None:
    sizes = [1 << 42, 1 << 10]

    def work(inputs: list[Any]) -> Sequence[torch.Tensor]:
        x = inputs[0]
        inputs.clear()
        return (x + 1, torch.empty(sizes[0], dtype=torch.uint8, device="cuda"))

    x = numbers(100)
    run = in_graphs(work, [x])
    with pytest.raises(torch.OutOfMemoryError):
        run([x])
    sizes.pop(0)
    for _ in range(3):
        results = run([x])
    assert results[1].nbytes == 1 << 10


# ---- what a pool holds, saved and put back


class Recording:
    """Graphs captured one behind another in one pool, whose state is saved after the first."""

    def __init__(self, sizes: Sequence[float]) -> None:
        self.stream = torch.cuda.Stream()
        self.graphs = [torch.cuda.CUDAGraph()]
        self.pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graphs[0], pool=self.pool, stream=self.stream):
            self.held = [block(mib) for mib in sizes]
        self.state = C._cuda_getCheckpointState(0, self.pool)
        self.saved = self.blocks()

    def capture(self, sizes: Sequence[float]) -> list[torch.Tensor]:
        """Capture another; return its tensors."""
        self.graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(self.graphs[-1], pool=self.pool, stream=self.stream):
            return [block(mib) for mib in sizes]

    def blocks(self) -> list[tuple[int, int, bool]]:
        """Return address, size, and whether it is in use, for each block of the saved segments."""
        return [
            (part["address"], part["size"], part["state"] == "active_allocated")
            for segment in segments_of(self.pool)
            for part in segment["blocks"]
        ]

    def put_back(
        self, stale: Sequence[torch.Tensor] = (), live: Sequence[torch.Tensor] = ()
    ) -> None:
        numbers_of = [[part.untyped_storage()._cdata for part in parts] for parts in (stale, live)]
        C._cuda_setCheckpointPoolState(0, self.state, *numbers_of)

    def lives(self, *tensors: torch.Tensor) -> bool:
        """Tell whether these, and nothing else, live in the pool."""
        addresses = {part.data_ptr() for part in tensors}
        return bool(C._cuda_checkPoolLiveAllocations(0, self.pool, addresses))


MIXES = [[0.001] * 10, [20], [0.5, 12, 30], [1.5, 1.5, 0.0005, 45], [0.7] * 5 + [11] * 3]


@pytest.mark.parametrize("sizes", MIXES, ids=["small", "large", "mixed", "more", "many"])
def test_a_pool_is_what_it_was_when_it_is_put_back(sizes: list[float]) -> None:
    recording = Recording(sizes)
    later = recording.capture([0.002, 3, 25])
    assert recording.blocks() != recording.saved
    assert not recording.lives(*recording.held)
    recording.put_back(stale=later)
    assert recording.lives(*recording.held)
    saved = [part for part in recording.saved if part[2]]
    assert [part for part in recording.blocks() if part[2]] == saved
    del later


def test_the_next_capture_takes_the_places_of_the_one_that_was_undone() -> None:
    recording = Recording([0.5, 12])
    sizes = [0.25, 8, 22]
    later = recording.capture(sizes)
    places = [part.data_ptr() for part in later]
    recording.put_back(stale=later)
    reserved = torch.cuda.memory_reserved()
    again = recording.capture(sizes)
    assert [part.data_ptr() for part in again] == places
    assert torch.cuda.memory_reserved() == reserved
    del later


def test_what_was_freed_since_lives_again_until_it_is_given_back() -> None:
    recording = Recording([12, 30])
    address = recording.held.pop().data_ptr()
    assert recording.lives(*recording.held)
    recording.put_back()
    assert not recording.lives(*recording.held)
    C._cuda_cudaCachingAllocator_raw_delete(address)
    assert recording.lives(*recording.held)


def test_tensors_that_are_stale_lose_their_deleter_and_live_ones_keep_it() -> None:
    recording = Recording([12])
    later = recording.capture([0.5, 22])
    assert all(C._has_Standard_Deleter(part.untyped_storage()._cdata) for part in later)
    recording.put_back(stale=later)
    assert not any(C._has_Standard_Deleter(part.untyped_storage()._cdata) for part in later)
    assert C._has_Standard_Deleter(recording.held[0].untyped_storage()._cdata)
    later.clear()  # frees nothing a second time
    assert recording.lives(*recording.held)
    recording.held.clear()
    assert recording.lives()


def twin_of(tensor: torch.Tensor, **parts: Any) -> Any:
    """Return a tensor at the same address that owns nothing."""
    storage = C._construct_storage_from_data_pointer(
        tensor.data_ptr(), tensor.device, tensor.nbytes
    )
    usual = {"dtype": tensor.dtype, "size": tuple(tensor.shape), "stride": tensor.stride()}
    return C._construct_CUDA_Tensor_From_Storage_And_Metadata(
        {"storage_offset": 0} | usual | parts, storage
    )


def test_a_tensor_is_made_of_an_address() -> None:
    recording = Recording([12])
    (owner,) = recording.held
    twin = twin_of(owner, dtype=torch.float32, size=(3, 5), stride=(5, 1), storage_offset=2)
    assert twin.data_ptr() == owner.data_ptr() + 8
    assert (twin.shape, twin.stride()) == ((3, 5), (5, 1))
    assert not C._has_Standard_Deleter(twin.untyped_storage()._cdata)
    del twin
    assert recording.lives(owner)


def test_a_tensor_that_owned_nothing_owns_what_is_put_back() -> None:
    recording = Recording([12])
    twin = twin_of(recording.held[0])
    recording.held.clear()
    assert recording.lives()
    recording.put_back(live=[twin])
    assert C._has_Standard_Deleter(twin.untyped_storage()._cdata)
    assert recording.lives(twin)
    del twin
    assert recording.lives()


def test_memory_is_taken_from_a_tensor_that_goes_on() -> None:
    recording = Recording([12])
    (kept,) = recording.held
    storage, address = kept.untyped_storage()._cdata, kept.data_ptr()
    C._free_And_Remove_DeleterFn(storage)
    assert not C._has_Standard_Deleter(storage)
    assert recording.lives()
    assert kept.data_ptr() == address
    del kept
    recording.held.clear()  # frees nothing a second time
    assert recording.capture([12])[0].data_ptr() == address


def test_the_state_of_a_pool_that_is_not_there_is_refused() -> None:
    pool = torch.cuda.graph_pool_handle()
    with pytest.raises(RuntimeError, match="Could not find pool"):
        C._cuda_getCheckpointState(0, pool)


def test_what_is_outside_of_the_pool_stays_when_it_is_put_back() -> None:
    recording = Recording([12])
    later = recording.capture([22])
    outside = [block(0.5), block(12)]
    places = [part.data_ptr() for part in outside]
    allocated = torch.cuda.memory_allocated()
    recording.put_back(stale=later)
    assert torch.cuda.memory_allocated() == allocated - 22 * MIB
    assert [part.data_ptr() for part in outside] == places
    more = [block(0.5), block(12)]
    assert len({part.data_ptr() for part in (*more, *outside, *recording.held)}) == 5


def test_states_are_put_back_many_times() -> None:
    recording = Recording([0.5, 12])
    reserved = set()
    for _ in range(10):
        later = recording.capture([0.25, 8, 22])
        recording.put_back(stale=later)
        reserved.add(torch.cuda.memory_reserved())
        assert recording.lives(*recording.held)
    assert len(reserved) == 1
    del later
