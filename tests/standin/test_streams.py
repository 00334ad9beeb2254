"""Side streams and events, with memory that one stream lends to another."""

# mypy: allow-untyped-calls

from __future__ import annotations

import pytest
import torch
from tests.standin.accounting import reserved_bytes, sums

from gmlake.standin import control

MIB = 1 << 20
SIZE = 8 * MIB


def block() -> torch.Tensor:
    """Return a tensor of a size that nothing else here has."""
    return torch.empty(SIZE, dtype=torch.uint8, device="cuda")


def states(address: int) -> list[str]:
    """Return what the snapshot says about the block at an address."""
    return [
        found["state"]
        for segment in torch.cuda.memory_snapshot()
        for found in segment["blocks"]
        if found["address"] == address
    ]


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))


def test_a_recorded_stream_keeps_a_freed_block_until_it_is_done() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block()
        address = lent.data_ptr()
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        stats = torch.cuda.memory_stats()
        assert stats["allocated_bytes.all.current"] == 0
        assert stats["active_bytes.all.current"] == SIZE
        assert states(address) == ["active_pending_free"]

        other = block()
        assert other.data_ptr() != address
        assert control.pending(side.cuda_stream) > 0
        advance_all(side)
        # PyTorch looks at its events when it is asked for memory next.
        again = block()
        assert again.data_ptr() == address
        assert torch.cuda.memory_stats()["active_bytes.all.current"] == 2 * SIZE
    total = sums(torch.cuda.memory_snapshot(), 0)
    assert total["active_bytes"] == total["allocated_bytes"] == 2 * SIZE


def test_a_block_that_was_not_recorded_is_used_again_at_once() -> None:
    with control.paced("manual"):
        first = block()
        address = first.data_ptr()
        first.add_(1)
        del first
        # Its next user comes after it on the same stream, pending or not.
        assert block().data_ptr() == address


def test_streams_do_not_share_free_blocks() -> None:
    side = torch.cuda.Stream()
    first = block()
    address = first.data_ptr()
    del first
    with torch.cuda.stream(side):
        assert block().data_ptr() != address
    assert block().data_ptr() == address
    assert torch.cuda.memory_reserved() == 2 * 20 * MIB


def test_a_stream_that_waits_gets_no_block_early() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with control.paced("manual"):
        with torch.cuda.stream(first):
            x = block()
            x.zero_()
            done = first.record_event()
        second.wait_event(done)
        with torch.cuda.stream(second):
            x.add_(1)
        finished = second.record_event()
        advance_all(second)
        assert not finished.query()
        advance_all(first)
        assert done.query()
        assert not finished.query()
        advance_all(second)
        assert finished.query()


def test_events_tell_what_is_pending() -> None:
    stream = torch.cuda.Stream()
    with control.paced("manual"), torch.cuda.stream(stream):
        before = torch.cuda.Event(enable_timing=True)
        after = torch.cuda.Event(enable_timing=True)
        assert before.query()  # never recorded
        before.record()
        block().zero_()
        after.record()
        assert not before.query()
        assert not stream.query()
        control.advance(stream.cuda_stream, 1)
        assert before.query()
        assert not after.query()
        after.synchronize()
        assert after.query()
        assert stream.query()
        assert before.elapsed_time(after) > 0
        with pytest.raises(ValueError, match="Both events must be recorded"):
            before.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_who_polls_comes_to_an_end() -> None:
    with control.paced("lag", 1000):
        x = block()
        for _ in range(50):
            x.add_(1)
        event = torch.cuda.Event()
        event.record()
        polls = 0
        while not event.query():
            polls += 1
            assert polls < 1000
        assert polls > 10


def test_synchronising_frees_what_was_lent() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block()
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        side.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0


def test_pinned_memory_is_kept_until_its_copy_is_done() -> None:
    with control.paced("manual"):
        source = torch.ones(MIB).pin_memory()
        address = source.data_ptr()
        target = source.to("cuda", non_blocking=True)
        del source
        second = torch.empty(MIB).pin_memory()
        assert second.data_ptr() != address
        torch.cuda.synchronize()
        third = torch.empty(MIB).pin_memory()
        assert third.data_ptr() == address
        assert target.numel() == MIB


def test_priorities_and_foreign_streams() -> None:
    urgent = torch.cuda.Stream(priority=-1)
    foreign = torch.cuda.ExternalStream(urgent.cuda_stream)
    assert urgent.priority == -1
    assert foreign.cuda_stream == urgent.cuda_stream
    with torch.cuda.stream(foreign):
        block().zero_()
    foreign.synchronize()


def test_a_copy_between_devices_leaves_nothing() -> None:
    here = torch.ones(MIB, device="cuda:0")
    side = torch.cuda.Stream(device=1)
    with torch.cuda.stream(side):
        there = here.to("cuda:1", non_blocking=True)
    here.record_stream(torch.cuda.current_stream(0))
    side.synchronize()
    del here, there
    assert reserved_bytes() == [0, 0]
