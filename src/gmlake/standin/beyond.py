"""What CUDA and its libraries take of a device beside what PyTorch's allocator reserves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB: Final = 1 << 20


@dataclass(frozen=True)
class Beyond:
    """Memory that is PyTorch's process's and not its allocator's. Sizes in bytes.

    context_bytes: the CUDA context. libraries_bytes: cuBLAS and cuDNN. kernels_bytes: code of the
    kernels, which are loaded as they are used first. error_bytes: by how much a measured program
    had more at most.
    """

    context_bytes: int
    libraries_bytes: int
    kernels_bytes: int
    error_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it, as it is most likely."""
        return self.context_bytes + self.libraries_bytes + self.kernels_bytes


CONTEXT_BYTES: Final = 520 * MIB
ERROR_BYTES: Final = 150 * MIB


def beyond(calls: Mapping[str, int]) -> Beyond:
    """Return what a program takes that called these functions of CUDA's so often."""
    libraries = 0
    if calls.get("cublasCreate_v2"):
        libraries += 40 * MIB
    if calls.get("cudnnCreate"):
        libraries += 40 * MIB
    return Beyond(CONTEXT_BYTES, libraries, 0, ERROR_BYTES)
