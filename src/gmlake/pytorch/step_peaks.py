"""Peaks of memory from one moment to the next, beside those that the program reads.

PyTorch keeps one peak of each figure. Here it is reset at every look, and what the program reads
has the peaks of before added, until the program resets them itself.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import wraps

from gmlake.pytorch import compat
from gmlake.pytorch.compat import Figures

_LIVE, _RESERVED = "allocated_bytes", "reserved_bytes"


class StepPeaks:
    """The highest live and reserved bytes of each device since the last look; made once."""

    def __init__(self) -> None:
        self._earlier: dict[int, Figures] = {}  # peaks that the program may still ask for
        self._seen: defaultdict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._read, self._reset = compat.replace_figures(self._around_read, self._around_reset)

    def look(self, device: int) -> tuple[int, int]:
        """Return the highest live and reserved bytes since the last look."""
        figures = self._read(device)
        self._earlier[device] = higher(figures, self._earlier.get(device, {}))
        self._reset(device)
        live, reserved = self._seen.pop(device, (0, 0))
        return max(live, _peak(figures, _LIVE)), max(reserved, _peak(figures, _RESERVED))

    def figures(self, device: int) -> Figures:
        """Return PyTorch's figures, with peaks since the last look."""
        return self._read(device)

    def _around_read(self, read: Callable[[int], Figures]) -> Callable[[int], Figures]:
        @wraps(read)
        def read_all(device: int) -> Figures:
            return higher(read(device), self._earlier.get(device, {}))

        return read_all

    def _around_reset(self, reset: Callable[[int], None]) -> Callable[[int], None]:
        @wraps(reset)
        def reset_all(device: int) -> None:
            figures = self._read(device)
            live, reserved = self._seen[device]
            self._seen[device] = (
                max(live, _peak(figures, _LIVE)),
                max(reserved, _peak(figures, _RESERVED)),
            )
            self._earlier.pop(device, None)
            reset(device)

        return reset_all


def higher(figures: Figures, earlier: Figures) -> Figures:
    """Return figures whose peaks are at least earlier ones; figures: as PyTorch nests them."""
    return {
        name: higher(value, earlier.get(name, {}))
        if isinstance(value, dict)
        else max(value, earlier.get(name, value))
        if name == "peak"
        else value
        for name, value in figures.items()
    }


def _peak(figures: Figures, name: str) -> int:
    return int(figures.get(name, {}).get("all", {}).get("peak", 0))
