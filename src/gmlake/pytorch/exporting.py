"""Memory that transports can register: each tensor in one allocation of the driver, not stitched.

NCCL's registered buffers, RDMA and other processes address memory by its physical allocations. A
registered buffer must lie in one, while a stitched tensor lies in many.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmlake.errors import UnsupportedError
from gmlake.lake import Lake
from gmlake.pytorch import lakes
from gmlake.pytorch.inside import Inside

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

EXPORTABLE: Final = 1  # the number of the region without a name


class exportable(Inside):  # noqa: N801 (it is used as a function)
    """Allocate from memory that transports can register: one physical allocation per tensor.

    Each allocation is at least 2 MiB large and aligned to that; it can be exported and, where the
    device supports it, registered for RDMA. The memory comes from a separate lake on each device,
    under PyTorch's caching algorithm, so it fragments as PyTorch's does: use it for buffers that
    are sent, not for everything.

    It applies to the thread that enters it, nests with gmlake.region() (the innermost applies), and
    can be a decorator. Raises RuntimeError if gmlake does not serve this process.
    """

    def __init__(self) -> None:
        super().__init__("exportable")

    def _recreate_cm(self) -> Self:
        return type(self)()

    def _region(self) -> tuple[int, bool, bool]:
        return EXPORTABLE, False, True


def is_exportable(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor lies in one physical allocation, as transports require.

    A tensor in several can still be sent to other processes by torch.multiprocessing, but cannot be
    registered in one piece. Memory that gmlake did not allocate counts as exportable. The time it
    takes grows with the lake. Raises ValueError for a tensor that is not on a GPU.
    """
    if not tensor.is_cuda:
        raise ValueError(f"only memory of a GPU is exportable, not that of {tensor.device}")
    address = tensor.untyped_storage().data_ptr()
    for lake in lakes.on_device(tensor.get_device()):
        answer = _in_one_chunk(lake, address)
        if answer is not None:
            return answer
    return True


def _in_one_chunk(lake: Lake, address: int) -> bool | None:
    """Whether a block lies in one chunk of the lake; None if it is not the lake's."""
    if not address:
        return True
    try:
        return lake.count_chunks(address) == 1 or lake.arena is not None
    except UnsupportedError:
        return lake.arena is not None
    except ValueError:
        pass
    try:
        lake.describe_elastic(address)
    except ValueError:
        return None
    return False
