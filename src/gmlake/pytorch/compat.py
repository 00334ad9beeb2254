"""The private parts of PyTorch that the allocator uses: no other file of it names such parts.

PARTS says for each what breaks without it, versions.SEEN which PyTorch versions have them all.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

import torch

_C: Final[Any] = torch._C

PARTS: Final[dict[str, str]] = {
    "cuda._is_in_bad_fork": "a child of fork would take the locks of its parent's lakes",
    "cuda._lazy_call": "`gmlake run` cannot warn when CUDA starts",
    "cuda.memory._record_memory_history": "record() fails, and on_oom has no lines",
    "cuda.memory._snapshot": "record() has nothing, and on_oom writes nothing",
    "cuda._device_count_nvml": "a process without a device is told of late",
    "_C._cuda_hasPrimaryContext": "the end of a program may use a device anew",
    "_C._cuda_getCurrentRawStream": "an elastic tensor knows no streams",
    "_C._current_graph_task_id": "backward passes are not told from forward passes",
    "_C.DisableTorchFunction": "record(model=...) runs in the program's own modes",
    "_C._cuda_isHistoryEnabled": "on_oom ends a program's own history",
    "_C._cuda_attach_out_of_memory_observer": "on_oom writes nothing",
    "_C._cuda_memoryStats": "run --record FOLDER knows no steps",
    "_C._cuda_clearCublasWorkspaces": "what PyTorch keeps for cuBLAS looks like a leak",
    "_C._cuda_resetPeakMemoryStats": "run --record FOLDER knows no steps",
}
"""The features that break without each part, by its path below `torch`."""


# ---- CUDA


def is_in_bad_fork() -> bool:
    """Whether this is a child of a process that had used CUDA."""
    return bool(torch.cuda._is_in_bad_fork())


def when_cuda_starts(call: Callable[[], object]) -> None:
    """Call a function when CUDA starts, or now if it has started."""
    torch.cuda._lazy_call(call)


def device_count() -> int:
    """Return how many devices there are without starting CUDA; -1 if that is not known."""
    return int(getattr(torch.cuda, "_device_count_nvml", lambda: -1)())


def is_in_use(device: int) -> bool:
    """Whether this process has a CUDA context on a device."""
    return bool(_C._cuda_hasPrimaryContext(device))


def current_stream(device: int) -> int:
    """Return the handle of a device's current stream."""
    return int(_C._cuda_getCurrentRawStream(device))


# ---- autograd and modes

graph_task: Final[Callable[[], int]] = _C._current_graph_task_id
"""Return the number of the backward pass that this thread is in; -1: none."""


def without_torch_functions() -> AbstractContextManager[object]:
    """Hide the calls inside from all modes and subclasses."""
    context: AbstractContextManager[object] = _C.DisableTorchFunction()
    return context


# ---- allocators


def may_have_cuda() -> bool:
    """Whether this PyTorch was built for CUDA."""
    return torch.version.cuda is not None and hasattr(_C, "_cuda_hasPrimaryContext")


def watch_refusals(call: Callable[[int, int, int, int], None]) -> None:
    """Call a function with device, size, limit and free bytes before each OutOfMemoryError."""
    _C._cuda_attach_out_of_memory_observer(call)


def memory_snapshot() -> dict[str, Any]:
    """Return the state of memory, and its history if one is kept."""
    found: dict[str, Any] = torch.cuda.memory._snapshot()
    return found


def device_bytes(device: int) -> int:
    """Return how much memory a device has."""
    return int(torch.cuda.mem_get_info(device)[1])


_FIGURES: Final = (
    ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"),
    ("_accelerator_getDeviceStats", "_accelerator_resetPeakStats"),  # from PyTorch 2.9 on
)
"""The functions that read a device's figures, and those that reset their peaks."""

Figures: TypeAlias = "dict[str, Any]"


def replace_figures(
    around_read: Callable[[Callable[[int], Figures]], Callable[[int], Figures]],
    around_reset: Callable[[Callable[[int], None]], Callable[[int], None]],
) -> tuple[Callable[[int], Figures], Callable[[int], None]]:
    """Put others around the functions that read and reset figures; return PyTorch's own."""
    read, reset = (getattr(_C, name) for name in _FIGURES[0])
    for reads, resets in _FIGURES:
        if hasattr(_C, reads) and hasattr(_C, resets):
            setattr(_C, reads, around_read(getattr(_C, reads)))
            setattr(_C, resets, around_reset(getattr(_C, resets)))
    return read, reset


def clear_workspaces() -> None:
    """Free what PyTorch keeps for cuBLAS; the next product of matrices asks for it anew."""
    _C._cuda_clearCublasWorkspaces()


def is_recording_history() -> bool:
    """Whether PyTorch keeps a history of memory."""
    return bool(_C._cuda_isHistoryEnabled())


def record_history(most_events: int = sys.maxsize, *, frames: bool = True) -> None:
    """Make PyTorch keep the last memory events, as many on each device.

    frames: with the Python lines that made the requests. Frees get no lines: some checkpointing
    breaks while they are taken.
    """
    torch.cuda.memory._record_memory_history(
        context="alloc" if frames else None, stacks="python", max_entries=most_events
    )


def stop_history() -> None:
    """Stop PyTorch's memory history."""
    torch.cuda.memory._record_memory_history(enabled=None)
