"""Activates gmlake in a process of `gmlake run`, once PyTorch is imported.

Importing PyTorch does not start CUDA, nor may this: the program may still choose devices, fork, or
never use any. Messages wait until CUDA starts, so that a program without it sees none.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import os
import warnings
from functools import partial
from typing import TYPE_CHECKING

from gmlake import annexes
from gmlake.errors import Error, GmlakeWarning
from gmlake.pytorch import compat, device, lakes, notices, session
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake._core import Stats
    from gmlake.lake import Lake


def activate() -> None:
    """Enable gmlake in this process as the environment says; print one line if it cannot be.

    An annex may have other plans for the process.
    """
    if any(take_over() for take_over in annexes.hooked("activation")) or device.absence():
        return
    if os.environ.get("GMLAKE_REPORT") == "1":
        atexit.register(_report, os.getpid())
    if wanted := os.environ.get("GMLAKE_RECORD"):
        from gmlake.pytorch import rank_recording, run_recording

        is_folder = wanted.endswith("/")
        (rank_recording.record_into if is_folder else run_recording.record_to)(wanted)
    try:
        _enable_quietly()
    except (Error, ValueError, RuntimeError) as error:
        notices.say(f"this process runs without gmlake: {error}")


def _enable_quietly() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.enable()
    for warning in caught:
        text = str(warning.message)
        compat.when_cuda_starts(partial(_warn, text))


def _warn(text: str) -> None:
    """Warn while CUDA starts, without raising, which would leave CUDA unusable."""
    try:
        warnings.warn(text, GmlakeWarning, stacklevel=notices._level())  # noqa: SLF001
    except GmlakeWarning:
        notices.say(text)


def _report(process: int) -> None:
    """Report how each device was served; print nothing if none was, or in a forked child."""
    if os.getpid() != process:
        return
    for number in lakes.devices():
        lake = lakes.find(number)
        if lake is not None:
            stats = lake.stats()
            notices.say(
                f"{_name()}, device {number}: "
                f"{format_size(stats['highest_reserved_bytes'])} reserved at the peak, "
                f"{format_size(stats['highest_live_bytes'])} live; "
                f"{_summary(stats)}{_annexed(lake)}"
            )


def _name() -> str:
    rank = os.environ.get("RANK")
    return f"process {os.getpid()}" if rank is None else f"rank {rank}"


def _summary(stats: Stats) -> str:
    states = ", ".join(f"{name} {count:,}" for name, count in stats["states"].items())
    return (
        f"{stats['allocations']:,} allocations ({states}); "
        f"{sum(stats['driver_calls'].values()):,} driver calls{_lending(stats)}"
    )


def _lending(stats: Stats) -> str:
    """Report the memory that streams lent each other, if any."""
    waits, borrowed_bytes = stats["cross_stream_waits"], stats["borrowed_bytes"]
    if not waits and not borrowed_bytes:
        return ""
    return f"; {format_size(borrowed_bytes)} lent between streams (waits: {waits:,})"


def _annexed(lake: Lake) -> str:
    """Add the annexes' reports."""
    return "".join(f"; {line}" for say in annexes.hooked("run report") if (line := say(lake)))
