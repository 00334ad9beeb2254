"""What the tests written after PyTorch's own ask of its memory, in one line each."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
C: Any = torch._C


def block(mib: float = 8, device: str = "cuda") -> torch.Tensor:
    """Return a tensor of so many MiB."""
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=device)


def stat(name: str, device: int = 0) -> int:
    """Return one of the statistics."""
    return int(torch.cuda.memory_stats(device)[name])


def snapshot() -> dict[str, Any]:
    """Return all that PyTorch tells of its memory."""
    found: dict[str, Any] = torch.cuda.memory._snapshot()
    return found


def segments_of(pool: Any) -> list[dict[str, Any]]:
    """Return the segments of a pool, by its id."""
    return [part for part in snapshot()["segments"] if tuple(part["segment_pool_id"]) == pool]


def block_of(tensor: torch.Tensor) -> dict[str, Any]:
    """Return what the snapshot says of a tensor's block."""
    (found,) = (
        part
        for segment in snapshot()["segments"]
        for part in segment["blocks"]
        if part["address"] == tensor.untyped_storage().data_ptr()
    )
    return dict(found)


def holds(segment: dict[str, Any], tensor: torch.Tensor) -> bool:
    """Tell whether a tensor lies in a segment."""
    return 0 <= tensor.data_ptr() - int(segment["address"]) < int(segment["total_size"])


def events(device: int = 0) -> list[dict[str, Any]]:
    """Return the recorded events of a device, without those of taking snapshots."""
    return [event for event in snapshot()["device_traces"][device] if event["action"] != "snapshot"]


@contextmanager
def recorded(enabled: Any = "all", **options: Any) -> Iterator[None]:
    """Record a history, with stacks of Python alone unless `stacks` says otherwise."""
    torch.cuda.memory._record_memory_history(enabled, **{"stacks": "python"} | options)
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(None)


@contextmanager
def at_most(mib: int) -> Iterator[None]:
    """Allow so much in addition to what PyTorch holds."""
    torch.cuda.empty_cache()
    allowed_bytes = torch.cuda.memory_reserved() + mib * MIB
    total_bytes = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(allowed_bytes / total_bytes)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at the same time; raise what one raises."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))
