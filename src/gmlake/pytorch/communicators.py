"""NCCL's own memory, which sleeps with regions: through the process groups of PyTorch.

NCCL allocates below PyTorch's allocator, one communicator for each process group and device, up to
several GB. From NCCL 2.29.7 on it can release most of that and restore it; PyTorch 2.12 and later
offer this as `suspend()`, `resume()` and `memory_stats()` of a group's backend. Whether a
communicator is suspended is asked of NCCL each time.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import distributed

_CALLS: Final = ("suspend", "resume", "memory_stats")
_NOT_MADE: Final = "communicator not initialized"


class _Backend(Protocol):
    """A backend of PyTorch's that can suspend its communicator."""

    def name(self) -> str: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def memory_stats(self) -> dict[str, int]:
        """Return `suspended`, 0 or 1, and the bytes `suspend`, `persist` and `total`."""


@dataclass(frozen=True)
class CommunicatorMemory:
    """Device memory of one process group's communicator, as NCCL counts it; sizes in bytes.

    name: the process group's. is_suspended: whether what can be released is. held_bytes: on the
    device now. suspended_bytes: released by NCCL, until the group is resumed. why_left: why it was
    left alone, such as a PyTorch or an NCCL without these calls; "" if it was not.
    """

    name: str
    is_suspended: bool = False
    held_bytes: int = 0
    suspended_bytes: int = 0
    why_left: str = ""


def _backends() -> Iterator[tuple[str, _Backend]]:
    """Yield NCCL's backend for the current device of each process group, with the group's name."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    device = torch.device("cuda", torch.cuda.current_device())
    for group, name in distributed.distributed_c10d._world.pg_names.items():  # noqa: SLF001
        try:
            backend: Any = group._get_backend(device)  # noqa: SLF001
        except RuntimeError:
            continue  # a group of the host
        if backend.name().startswith("nccl"):
            yield name, backend


def _memory_of(name: str, backend: _Backend) -> CommunicatorMemory | None:
    """Return what a communicator holds; None if it was not made, and so holds nothing."""
    missing = [call for call in _CALLS if not hasattr(backend, call)]
    if missing:
        why = f"PyTorch {torch.__version__} cannot suspend NCCL; 2.12 and later can"
        return CommunicatorMemory(name, why_left=why)
    try:
        stats = backend.memory_stats()
    except RuntimeError as error:
        why = str(error).strip().splitlines()[0]
        if _NOT_MADE in why:
            return None
        return CommunicatorMemory(name, why_left=why)
    is_suspended = bool(stats["suspended"])
    released = stats["suspend"] if is_suspended else 0
    return CommunicatorMemory(name, is_suspended, stats["total"] - released, released)


def memory_of_communicators() -> tuple[CommunicatorMemory, ...]:
    """Return the memory of every communicator on the current device, or why it is not known."""
    found = (_memory_of(name, backend) for name, backend in _backends())
    return tuple(memory for memory in found if memory is not None)


def suspend_communicators() -> None:
    """Suspend every communicator on the current device that is not suspended and can be.

    Every rank of a group must call this, and no work may be queued on it: NCCL waits for the
    others. If one fails, those before it are suspended, and the exception is raised.
    """
    torch.cuda.synchronize()
    for name, backend in _backends():
        memory = _memory_of(name, backend)
        if memory is not None and not memory.why_left and not memory.is_suspended:
            backend.suspend()


def resume_communicators() -> bool:
    """Resume every suspended communicator on the current device, and return whether any was.

    Every rank must call this.
    """
    was_any = False
    for name, backend in _backends():
        memory = _memory_of(name, backend)
        if memory is not None and memory.is_suspended:
            backend.resume()
            was_any = True
    return was_any
