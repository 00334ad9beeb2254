"""Memory that transports take whole: each tensor in one allocation of the driver, in no view.

NCCL's registered buffers, RDMA and other processes know memory by its physical allocations. What
they register must lie in one, while a stitched tensor lies in many.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmlake.errors import UnsupportedError
from gmlake.pytorch import lakes
from gmlake.pytorch.inside import Inside

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from gmlake.lake import Lake

_EXPORTABLE: Final = 2  # GML_TORCH_EXCLUSIVE: a region without a name


class exportable(Inside):  # noqa: N801 (it is used as a function)
    """Let what this thread allocates inside lie in memory that transports take whole.

    Each tensor lies in one physical allocation, at least 2 MiB large and aligned to that, which can
    be exported and, where the device can, registered for RDMA. It comes from a lake of its own on
    each device, under PyTorch's caching algorithm, so such memory fragments as PyTorch's does: use
    it for buffers that are sent, not for everything.

    It is entered by a thread, nests with gmlake.region(), the inner one counts, and can be a
    decorator. Raises RuntimeError where gmlake does not serve this process.
    """

    def __init__(self) -> None:
        """Nothing begins yet."""
        super().__init__("exportable")

    def _recreate_cm(self) -> Self:
        return type(self)()

    def _number(self) -> int:
        return _EXPORTABLE


def is_exportable(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor lies in one physical allocation, as transports want it.

    Those that lie in several can still be sent to other processes by torch.multiprocessing, but
    cannot be registered in one piece. Memory that gmlake did not serve is as its allocator made it,
    and counts as exportable. Takes time with what the lake holds. Raises ValueError for a tensor
    that is not on a GPU.
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
    """Whether a block lies in one chunk of the lake; None where it is not the lake's."""
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
