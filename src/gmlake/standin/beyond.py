"""What CUDA and its libraries take of a device beside what PyTorch's allocator reserves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20

_CONTEXT_BYTES: Final = 527 * MIB
"""A context, before the first kernel."""

_KERNELS_BYTES: Final = 94 * MIB
"""PyTorch's kernels: their first use makes room for what they share, each adds little."""

_LIBRARIES: Final = {
    "cublasCreate_v2": 146 * MIB,
    "cudnnCreate": 2 * MIB,
    "cusolverDnCreate": 96 * MIB,
    "cufftCreate": 8 * MIB,
}
"""By the function that opens a library: what its first use adds."""

_COMMUNICATOR_BYTES: Final = 850 * MIB
"""NCCL's first communicator: of two ranks of one host, where it was measured."""

_ERROR_BYTES: Final = 32 * MIB
"""By how much programs on the devices that were checked had more, at most."""

_COMMUNICATION_ERROR_BYTES: Final = 600 * MIB
"""The same where ranks talk: sending between two adds up to this, more ranks have more links."""

_UNCHECKED_ERROR_BYTES: Final = 300 * MIB
"""The same for devices that were not: contexts grow with the number of multiprocessors."""


@dataclass(frozen=True)
class Beyond:
    """Memory of PyTorch's process that is not its allocator's. Sizes in bytes.

    context_bytes: the CUDA context. kernels_bytes: PyTorch's own code. libraries_bytes: cuBLAS,
    cuDNN and others. communication_bytes: NCCL. error_bytes: how much more it may be.
    """

    context_bytes: int
    kernels_bytes: int
    libraries_bytes: int
    communication_bytes: int
    error_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it, as it is most likely."""
        return (
            self.context_bytes
            + self.kernels_bytes
            + self.libraries_bytes
            + self.communication_bytes
        )


def beyond(calls: Mapping[str, int], *, world: int, is_checked: bool) -> Beyond:
    """Return what a program takes that called these functions of CUDA's so often.

    world: the processes of its job. is_checked: whether its device is one that was measured.
    Measured on an H100 (driver 580, PyTorch 2.11 for CUDA 13.0): benchmarks/gpu/overheads.py.
    """
    return Beyond(
        _CONTEXT_BYTES,
        _KERNELS_BYTES,
        sum(size for opening, size in _LIBRARIES.items() if calls.get(opening)),
        _COMMUNICATOR_BYTES if world > 1 else 0,
        (_ERROR_BYTES if is_checked else _UNCHECKED_ERROR_BYTES)
        + (_COMMUNICATION_ERROR_BYTES if world > 1 else 0),
    )
