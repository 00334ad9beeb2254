"""What PyTorch's own tests ask of tensors that are copied, kept, resized and shared, in our words.

Other processes cannot open plain memory on the stand-in: it answers that this is not supported.
See test_processes.py for what they can.
"""

# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.asking import MIB, C, advance_all, at_most, block, block_of, holds, snapshot
from torch.multiprocessing.reductions import StorageWeakRef, reduce_tensor

from gmlake.standin import control

if TYPE_CHECKING:
    from pathlib import Path


def allocated() -> int:
    return torch.cuda.memory_allocated()


# ---- other processes


def test_memory_of_a_pool_is_shared_as_pytorchs() -> None:
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        held = block(30)
    before = allocated()
    for share in (held.untyped_storage()._share_cuda_, lambda: reduce_tensor(held)):
        with pytest.raises(RuntimeError, match="operation not supported"):
            share()
    held.add_(1)
    torch.cuda.synchronize()
    assert allocated() == before


def test_collecting_what_others_gave_back_does_no_harm() -> None:
    before = allocated()
    torch.cuda.ipc_collect()
    assert allocated() == before


def test_a_tensor_is_shared_where_it_lies() -> None:
    held = block(3)
    assert held.is_shared()
    assert held.share_memory_().data_ptr() == held.data_ptr()


def test_a_weak_reference_tells_the_end_of_a_storage() -> None:
    held = block(3)
    reference = StorageWeakRef(held.untyped_storage())
    view = held[5:]
    del held
    assert not reference.expired()
    del view
    assert reference.expired()


def test_a_child_that_only_ends_leaves_the_parents_memory() -> None:
    held = block(30)
    before = allocated()
    child = os.fork()
    if child == 0:
        del held
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert allocated() == before
    assert block_of(held)["state"] == "active_allocated"


# ---- files


@pytest.mark.parametrize("weights_only", [True, False])
def test_tensors_are_kept_in_a_file(tmp_path: Path, weights_only: bool) -> None:  # noqa: FBT001
    model = torch.nn.Linear(64, 64).cuda()
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    before = allocated()
    found = torch.load(path, weights_only=weights_only)
    assert {part.device.type for part in found.values()} == {"cuda"}
    assert allocated() == before + 64 * 64 * 4 + 512
    model.load_state_dict(found)
    on_host = torch.load(path, map_location="cpu", weights_only=weights_only)
    assert {part.device.type for part in on_host.values()} == {"cpu"}
    on_second = torch.load(path, map_location="cuda:1", weights_only=weights_only)
    assert {part.device.index for part in on_second.values()} == {1}


def test_views_share_their_storage_in_a_file_too() -> None:
    whole = torch.zeros(1000, device="cuda")
    file = io.BytesIO()
    torch.save([whole, whole[100:200]], file)
    file.seek(0)
    before = allocated()
    a, b = torch.load(file)
    assert b.data_ptr() == a.data_ptr() + 400
    assert allocated() == before + 4096


def test_tensors_are_pickled() -> None:
    held = block(1)
    before = allocated()
    twin = pickle.loads(pickle.dumps(held))
    assert twin.device == held.device
    assert twin.data_ptr() != held.data_ptr()
    assert allocated() == before + MIB


def test_deep_copies_have_memory_of_their_own() -> None:
    model = torch.nn.Linear(256, 256).cuda()
    before = allocated()
    twin = copy.deepcopy(model)
    assert allocated() == before + 256 * 256 * 4 + 1024
    del twin
    assert allocated() == before


# ---- other libraries


def test_a_tensor_goes_through_dlpack_and_back() -> None:
    held = block(3)
    before = allocated()
    address = held.data_ptr()
    twin = torch.utils.dlpack.from_dlpack(held)
    assert twin.data_ptr() == address
    del held
    assert allocated() == before
    del twin
    gc.collect()
    assert allocated() == before - 3 * MIB


def test_a_capsule_that_nobody_takes_gives_the_memory_back() -> None:
    held = block(3)
    before = allocated()
    capsule = torch.utils.dlpack.to_dlpack(held)  # type: ignore[attr-defined]
    del held
    assert allocated() == before
    del capsule
    assert allocated() == before - 3 * MIB


def test_the_interface_for_arrays_tells_where_a_tensor_lies() -> None:
    held = torch.zeros(3, 5, device="cuda")
    described: Any = held.__cuda_array_interface__
    assert described["data"] == (held.data_ptr(), False)
    assert described["shape"] == (3, 5)
    twin = torch.as_tensor(held, device="cuda")
    assert twin.data_ptr() == held.data_ptr()


def test_a_foreign_array_is_no_memory_of_the_allocators() -> None:
    owner = torch.zeros(3, 5, device="cuda")
    before = allocated()

    class Array:
        __cuda_array_interface__ = owner.__cuda_array_interface__

    twin = torch.as_tensor(Array(), device="cuda")
    assert twin.data_ptr() == owner.data_ptr()
    twin.record_stream(torch.cuda.Stream())  # nobody's, so nothing happens
    del twin
    gc.collect()
    assert allocated() == before


# ---- storages


def test_a_storage_shrinks_to_nothing_and_grows_again() -> None:
    held = block(30)
    storage = held.untyped_storage()
    before = allocated()
    storage.resize_(0)
    assert allocated() == before - 30 * MIB
    storage.resize_(40 * MIB)
    assert allocated() == before + 10 * MIB
    assert block_of(held)["requested_size"] == 40 * MIB
    del held, storage
    assert allocated() == before - 30 * MIB


def test_a_tensor_grows_in_place() -> None:
    held = block(3)
    before = allocated()
    held.resize_(30 * MIB)
    assert allocated() == before + 27 * MIB
    held.resize_(MIB)
    assert allocated() == before + 27 * MIB


def test_data_is_exchanged_between_tensors() -> None:
    first, second = block(3), block(30)
    addresses = first.data_ptr(), second.data_ptr()
    before = allocated()
    first.data, second.data = second.data, first.data
    assert (second.data_ptr(), first.data_ptr()) == addresses
    del first
    assert allocated() == before - 30 * MIB


def test_a_storage_outlives_its_tensor() -> None:
    held = block(3)
    storage = held.untyped_storage()
    gone = weakref.ref(held)
    before = allocated()
    del held
    assert gone() is None
    assert allocated() == before
    del storage
    assert allocated() == before - 3 * MIB


def test_each_tensor_lies_in_one_segment() -> None:
    held = [block(mib) for mib in (0.001, 0.6, 3, 12, 40)]
    segments = snapshot()["segments"]
    for tensor in held:
        assert sum(holds(segment, tensor) for segment in segments) == 1


# ---- the host's memory


def test_a_copy_to_the_device_keeps_pinned_memory_until_it_is_done() -> None:
    C._host_emptyCache()
    side = torch.cuda.Stream()
    with control.paced("manual"):
        pinned = torch.zeros(3 * MIB, dtype=torch.uint8).pin_memory()
        address = pinned.data_ptr()
        with torch.cuda.stream(side):
            held = pinned.to("cuda", non_blocking=True)
        del pinned
        assert torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True).data_ptr() != address
        advance_all(side)
    torch.cuda.synchronize()
    assert held.numel() == 3 * MIB


def test_statistics_of_the_host_are_nested_too() -> None:
    flat = torch.cuda.host_memory_stats()
    nested = torch.cuda.memory.host_memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["current"] == flat["allocated_bytes.current"]
    assert nested["num_host_alloc"] == flat["num_host_alloc"]


def test_statistics_are_nested_too() -> None:
    held = block(30)
    flat = torch.cuda.memory_stats()
    nested = torch.cuda.memory_stats_as_nested_dict()
    for name in ("allocated_bytes", "reserved_bytes", "active", "segment"):
        for pool in ("all", "large_pool", "small_pool"):
            assert nested[name][pool]["current"] == flat[f"{name}.{pool}.current"]
        assert flat[f"{name}.all.current"] == sum(
            flat[f"{name}.{pool}.current"] for pool in ("large_pool", "small_pool")
        )
    assert nested["num_ooms"] == flat["num_ooms"]
    assert held.nbytes <= nested["allocated_bytes"]["all"]["current"]


# ---- torch.accelerator


def test_the_accelerator_tells_the_same() -> None:
    held = [block(30), block(7, "cuda:1")]
    twin = torch.accelerator
    for device in (0, 1):
        assert twin.memory_allocated(device) == torch.cuda.memory_allocated(device)
        assert twin.memory_reserved(device) == torch.cuda.memory_reserved(device)
        assert twin.max_memory_allocated(device) == torch.cuda.max_memory_allocated(device)
        assert twin.max_memory_reserved(device) == torch.cuda.max_memory_reserved(device)
        assert twin.get_memory_info(device) == torch.cuda.mem_get_info(device)
    assert twin.memory_allocated(1) >= held[1].nbytes
    held.clear()
    twin.empty_cache()
    assert torch.cuda.memory_reserved() == twin.memory_reserved()


def test_the_accelerator_resets_what_cuda_reads() -> None:
    block(30)
    assert torch.cuda.max_memory_allocated() >= 30 * MIB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == allocated()
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
    held = block(3)
    assert torch.accelerator.memory_stats()["allocated_bytes.all.allocated"] == held.nbytes


# ---- caching


def test_without_caching_tensors_come_and_go_at_once() -> None:
    before = torch.cuda.mem_get_info()[0]
    torch.cuda.caching_allocator_enable(False)  # noqa: FBT003
    try:
        held = block(30)
        assert torch.cuda.mem_get_info()[0] <= before - 30 * MIB
        del held
        assert torch.cuda.mem_get_info()[0] == before
    finally:
        torch.cuda.caching_allocator_enable(True)  # noqa: FBT003
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    block(30)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations + 1


def test_raw_memory_of_a_device_and_a_stream() -> None:
    side = torch.cuda.Stream(device=1)
    before = torch.cuda.memory_allocated(1)
    address = torch.cuda.caching_allocator_alloc(3 * MIB, device=1, stream=side)
    assert torch.cuda.memory_allocated(1) == before + 3 * MIB
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated(1) == before


def test_a_fraction_follows_what_is_held() -> None:
    with at_most(100):
        held = [block(40), block(40)]
        with pytest.raises(torch.OutOfMemoryError):
            block(40)
        held.pop()
        held.append(block(40))
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()), pytest.raises(torch.OutOfMemoryError):
            block(40)
    held.append(block(40))
