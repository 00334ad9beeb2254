"""The order in which the first stage of a pipeline works: 1F1B, and interleaved 1F1B.

1F1B: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", 2021 (PipeDream-Flush).
Interleaved: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", 2021. Needs no PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Turn(NamedTuple):
    """A pass through a chunk: forward with a new micro-batch, or back with the oldest."""

    is_forward: bool
    chunk: int


def warm_up(stages: int, chunks: int) -> int:
    """Return the forward passes of the first stage before its first backward pass is due."""
    return stages - 1 if chunks == 1 else 2 * (stages - 1) + (chunks - 1) * stages


def turns(stages: int, chunks: int, micro_batches: int) -> Iterator[Turn]:
    """Yield the passes of one step; with chunks, `micro_batches` is a multiple of `stages`."""
    total = chunks * micro_batches
    first = min(warm_up(stages, chunks), total)

    def chunk(number: int) -> int:
        return number % (stages * chunks) // stages

    for number in range(first):
        yield Turn(is_forward=True, chunk=chunk(number))
    for number in range(total):
        if number + first < total:
            yield Turn(is_forward=True, chunk=chunk(number + first))
        yield Turn(is_forward=False, chunk=chunks - 1 - chunk(number))
