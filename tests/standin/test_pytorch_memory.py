"""What PyTorch's own tests of its memory ask for, where it needs no kernel, in our words.

Here it is asked of PyTorch itself. `test_pytorch_full.py` and `test_pytorch_pool.py` run this file
once more in processes that gmlake serves, and say what cannot hold there, and why. What concerns
graphs and pools is in `test_pytorch_graphs.py` and `test_pytorch_mempool.py`.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
C: Any = torch._C
record_history: Any = torch.cuda.memory._record_memory_history
# A setting that is left out begins anew, all but these.
USUAL = "expandable_segments:False,graph_capture_record_stream_reuse:False"


def block(size_bytes: int, device: str = "cuda") -> torch.Tensor:
    """Return a tensor of so many bytes."""
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)


def stat(name: str, device: int = 0) -> int:
    return int(torch.cuda.memory_stats(device)[name])


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))


@pytest.fixture(autouse=True)
def _begins_empty() -> Iterator[None]:
    """Start each test with counters that begin, and end it without a history or settings."""
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    for device in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(device)
    yield
    C._accelerator_setAllocatorSettings(USUAL)
    torch.cuda.memory._set_memory_metadata("")
    record_history(None)


# ---- streams


def test_memory_lent_to_a_stream_is_not_used_before_it_is_done() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(8 * MIB)
        address = lent.data_ptr()
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        meanwhile = block(8 * MIB)
        assert not address <= meanwhile.data_ptr() < address + 8 * MIB
        advance_all(side)
        assert block(8 * MIB).data_ptr() == address


def test_a_view_that_begins_later_lends_all_of_its_memory() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(2 * MIB)
        address = lent.data_ptr()
        view = lent[512 * 1024 :]
        with torch.cuda.stream(side):
            view.add_(1)
        view.record_stream(side)
        del lent, view
        meanwhile = block(2 * MIB)
        assert not address <= meanwhile.data_ptr() < address + 2 * MIB
        advance_all(side)


def test_lending_nothing_does_nothing() -> None:
    torch.empty(0, device="cuda").record_stream(torch.cuda.Stream())
    assert stat("active.all.current") == 0
