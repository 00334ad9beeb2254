"""What PyTorch's own tests ask of tensors that are copied, kept, resized and shared, in our words.

Other processes cannot open plain memory on the stand-in: it answers that this is not supported.
See test_processes.py for what they can.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import os

import pytest
import torch
from tests.standin.asking import at_most, block, block_of


def allocated() -> int:
    return torch.cuda.memory_allocated()


def test_collecting_what_others_gave_back_does_no_harm() -> None:
    before = allocated()
    torch.cuda.ipc_collect()
    assert allocated() == before


def test_a_tensor_is_shared_where_it_lies() -> None:
    held = block(3)
    assert held.is_shared()
    assert held.share_memory_().data_ptr() == held.data_ptr()


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
