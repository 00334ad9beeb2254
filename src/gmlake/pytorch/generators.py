"""The numbers from which CUDA graphs read their random state: they lie outside of regions.

Before PyTorch 2.13 all graphs of a device have the same two. They are allocated before the first
graph is captured, every replay of any graph writes them, and they end with the last graph. Those of
a region would be missing while it sleeps.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib

import torch

from gmlake import _core
from gmlake.pytorch import compat

_NUMBERS_BYTES = 4096  # more than two numbers take


class _Outside(_core.Inside):
    """Serves the thread that enters it from the lakes of the devices."""

    is_everywhere = False

    def region(self) -> tuple[int, bool, bool]:
        return 0, False, False


def numbers_outside(*, will_capture: bool) -> list[torch.cuda.CUDAGraph]:
    """Return graphs that are never captured: until they end, no other one allocates the numbers.

    There is one for each device that this process uses, unless its memory is at an end.
    will_capture: also for the current device, which is used from now on.
    """
    graphs: list[torch.cuda.CUDAGraph] = []
    if will_capture:
        torch.cuda.init()
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return graphs
    current = torch.cuda.current_device() if will_capture else None
    for device, generator in enumerate(torch.cuda.default_generators):
        if device == current or compat.is_in_use(device):
            with torch.cuda.device(device), _Outside(), contextlib.suppress(RuntimeError):
                # A graph whose numbers are refused cannot be destroyed: PyTorch ends the process.
                torch.empty(_NUMBERS_BYTES, dtype=torch.uint8, device="cuda")
                graph = torch.cuda.CUDAGraph()
                graph.register_generator_state(generator)
                graphs.append(graph)
    return graphs
