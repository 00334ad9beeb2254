"""Finds the bytes of a tensor that an operator accesses by indices."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gmlake.diagnosis.object_layout import READS, WRITES
from gmlake.diagnosis.operators import private
from gmlake.diagnosis.operators.ranges import Run, runs_of

Integers: TypeAlias = NDArray[np.int64]

CHOICES: Final = ("always", "cpu only", "never")

MOST_INDICES: Final = 1 << 22
"""The most indices that are read; with more, the whole tensor counts as accessed."""

MOST_RUNS: Final = 1 << 16
"""The most runs of one indexed access; with more, the whole tensor counts as accessed."""

Reader: TypeAlias = Callable[[torch.Tensor], "Integers | None"]
"""Returns the values of a tensor of indices, or None if they are not to be read."""

Found: TypeAlias = "tuple[Sequence[Run] | None, int]"
"""The bytes, None for unknown ones; and the access to them: READS, WRITES or both."""

Finder: TypeAlias = Callable[[Sequence[Any], Reader], Found]
"""Takes the positional arguments, of which the first is the tensor that is meant."""


def reader(choice: str) -> Reader:
    """Return a reader of indices. choice: one of CHOICES. Raises ValueError.

    Reading those of a GPU waits for it; while a CUDA graph is captured they are never read.
    """
    if choice not in CHOICES:
        raise ValueError(f"indices is {choice!r}, but must be one of {', '.join(CHOICES)}")

    def read(tensor: torch.Tensor) -> Integers | None:
        is_readable = choice != "never" and (choice == "always" or not tensor.is_cuda)
        if not is_readable or type(tensor) is not torch.Tensor or tensor.is_meta:
            return None
        if tensor.numel() > MOST_INDICES:
            return None
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        # The program's own modes must not see this.
        with private.without_dispatch_modes():
            values: Integers = tensor.detach().cpu().numpy()
        return values if values.dtype in (np.bool_, np.uint8) else values.astype(np.int64)

    return read


# ---- runs from indices --------------------------------------------------------------------------


def _spread(starts: Integers, pattern: Sequence[Run], item_bytes: int) -> Sequence[Run] | None:
    """Return a pattern of runs at each of several starts, which are in elements.

    A start that comes several times has its weight multiplied.
    """
    if not pattern or not starts.size:
        return ()
    places, counts = np.unique(starts, return_counts=True)
    places = places * item_bytes
    if len(pattern) == 1 and pattern[0][3] == 1:
        return _joined(places, counts, pattern[0])
    if len(places) * len(pattern) > MOST_RUNS:
        return None
    return [
        (place + offset, size, stride, repeat, weight * count)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True)
        for offset, size, stride, repeat, weight in pattern
    ]


def _joined(places: Integers, counts: Integers, pattern: Run) -> Sequence[Run] | None:
    """Return runs at sorted places, merged if they meet and count the same."""
    offset, size, _, _, weight = pattern
    breaks = np.flatnonzero((np.diff(places) != size) | (np.diff(counts) != 0)) + 1
    firsts = np.concatenate(([0], breaks))
    if len(firsts) > MOST_RUNS:
        return None
    lengths = np.diff(np.concatenate((firsts, [len(places)]))) * size
    return [
        (place + offset, length, length, 1, weight * count)
        for place, length, count in zip(
            places[firsts].tolist(), lengths.tolist(), counts[firsts].tolist(), strict=True
        )
    ]


def _without(sizes: Sequence[int], dropped: set[int]) -> tuple[int, ...]:
    return tuple(size for dim, size in enumerate(sizes) if dim not in dropped)


def _pattern(tensor: torch.Tensor, indexed: set[int]) -> Sequence[Run] | None:
    """Return the runs of all that is not indexed, from offset 0."""
    shape = _without(tensor.shape, indexed)
    strides = _without(tensor.stride(), indexed)
    runs, is_exact = runs_of(shape, strides, 0, tensor.itemsize)
    return runs if is_exact else None


def _wrapped(values: Integers, size: int) -> Integers:
    """Return indices with those from the end counted from the start."""
    return np.where(values < 0, values + size, values)


def _rows(tensor: torch.Tensor, dim: int, index: torch.Tensor, read: Reader) -> Any:  # noqa: ANN401
    values = read(index)
    if values is None or not tensor.dim():
        return None
    dim %= tensor.dim()
    pattern = _pattern(tensor, {dim})
    if pattern is None:
        return None
    chosen = _wrapped(values.reshape(-1), tensor.shape[dim])
    starts = int(tensor.storage_offset()) + chosen * tensor.stride(dim)
    return _spread(starts, pattern, tensor.itemsize)


def _elements(tensor: torch.Tensor, dim: int, index: torch.Tensor, read: Reader) -> Any:  # noqa: ANN401
    values = read(index)
    if values is None or not tensor.dim() or values.ndim != tensor.dim():
        return None
    dim %= tensor.dim()
    starts = int(tensor.storage_offset()) + _wrapped(values, tensor.shape[dim]) * tensor.stride(dim)
    for other, stride in enumerate(tensor.stride()):
        if other != dim:
            line = np.arange(values.shape[other], dtype=np.int64) * stride
            starts = starts + line.reshape([-1 if at == other else 1 for at in range(values.ndim)])
    return _spread(starts.reshape(-1), _one(tensor), tensor.itemsize)


def _one(tensor: torch.Tensor) -> Sequence[Run]:
    return ((0, tensor.itemsize, tensor.itemsize, 1, 1),)


def _taken(tensor: torch.Tensor, index: torch.Tensor, read: Reader) -> Any:  # noqa: ANN401
    values = read(index) if tensor.is_contiguous() else None
    if values is None:
        return None
    chosen = _wrapped(values.reshape(-1), tensor.numel())
    return _spread(int(tensor.storage_offset()) + chosen, _one(tensor), tensor.itemsize)


def _indexed(tensor: torch.Tensor, given: Sequence[torch.Tensor | None], read: Reader) -> Any:  # noqa: ANN401
    chosen: dict[int, Integers] = {}
    dim = 0
    for index in given:
        if index is None:
            dim += 1
            continue
        values = read(index)
        if values is None:
            return None
        if values.dtype in (np.bool_, np.uint8):
            for places in np.nonzero(values):
                chosen[dim] = places.astype(np.int64)
                dim += 1
        else:
            chosen[dim] = values
            dim += 1
    pattern = _pattern(tensor, set(chosen))
    if pattern is None:
        return None
    starts: Any = np.int64(int(tensor.storage_offset()))
    for at, values in chosen.items():
        starts = starts + _wrapped(values, tensor.shape[at]) * tensor.stride(at)
    return _spread(np.asarray(starts).reshape(-1), pattern, tensor.itemsize)


# ---- operators ----------------------------------------------------------------------------------


def _embedding(args: Sequence[Any], read: Reader) -> Found:
    return _rows(args[0], 0, args[1], read), READS


def _renormed(args: Sequence[Any], read: Reader) -> Found:
    return _rows(args[0], 0, args[1], read), READS | WRITES


def _selected(args: Sequence[Any], read: Reader) -> Found:
    return _rows(args[0], args[1], args[2], read), READS


def _rows_written(args: Sequence[Any], read: Reader) -> Found:
    return _rows(args[0], args[1], args[2], read), WRITES


def _rows_changed(args: Sequence[Any], read: Reader) -> Found:
    return _rows(args[0], args[1], args[2], read), READS | WRITES


def _gathered(args: Sequence[Any], read: Reader) -> Found:
    return _elements(args[0], args[1], args[2], read), READS


def _scattered(args: Sequence[Any], read: Reader) -> Found:
    return _elements(args[0], args[1], args[2], read), WRITES


def _scatter_changed(args: Sequence[Any], read: Reader) -> Found:
    return _elements(args[0], args[1], args[2], read), READS | WRITES


def _take(args: Sequence[Any], read: Reader) -> Found:
    return _taken(args[0], args[1], read), READS


def _accumulates(args: Sequence[Any]) -> bool:
    return len(args) > 3 and bool(args[3])  # noqa: PLR2004 (accumulate is the fourth)


def _put(args: Sequence[Any], read: Reader) -> Found:
    role = READS | WRITES if _accumulates(args) else WRITES
    return _taken(args[0], args[1], read), role


def _index(args: Sequence[Any], read: Reader) -> Found:
    return _indexed(args[0], args[1], read), READS


def _index_put(args: Sequence[Any], read: Reader) -> Found:
    role = READS | WRITES if _accumulates(args) else WRITES
    return _indexed(args[0], args[1], read), role


FINDERS: Final[dict[str, Finder]] = {
    "embedding": _embedding,
    "embedding_renorm_": _renormed,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "index_select": _selected,
    "index_add_": _rows_changed,
    "index_reduce_": _rows_changed,
    "index_copy_": _rows_written,
    "index_fill_": _rows_written,
    "gather": _gathered,
    "scatter_": _scattered,
    "scatter_.reduce": _scatter_changed,
    "scatter_.value_reduce": _scatter_changed,
    "scatter_add_": _scatter_changed,
    "scatter_reduce_": _scatter_changed,
    "take": _take,
    "put_": _put,
    "index": _index,
    "_unsafe_index": _index,
    "index_put_": _index_put,
    "_index_put_impl_": _index_put,
}
"""By the name of the operator, or of its overload if that behaves differently."""
