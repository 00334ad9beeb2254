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
from gmlake.errors import Error
from gmlake.lake import Lake
from gmlake.pytorch import compat, device, lakes, notices, serving, session
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake._core import Stats


def activate() -> None:
    """Enable gmlake in this process as the environment says; print one line if it cannot be.

    An annex may have other plans for the process.
    """
    if any(take_over() for take_over in annexes.hooked("activation")) or device.absence():
        return
    atexit.register(serving.tell_of_fallbacks)
    if os.environ.get("GMLAKE_REPORT") == "1":
        atexit.register(_report, os.getpid())
    if wanted := os.environ.get("GMLAKE_RECORD"):
        from gmlake.pytorch import documents, rank_recording

        is_folder = wanted.endswith("/")
        (rank_recording.record_into if is_folder else documents.record_to)(wanted)
    try:
        _enable_quietly()
    except (Error, ValueError, RuntimeError) as error:
        notices.say(f"this process runs without gmlake: {error}")


def _enable_quietly() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.enable()
    for warning in caught:
        compat.when_cuda_starts(partial(notices.warn_safely, str(warning.message)))


def _report(process: int) -> None:
    """Report how each device was served; print nothing if none was, or in a forked child."""
    if os.getpid() != process:
        return
    from gmlake.pytorch import sleeping

    regions = lakes.of_regions()
    for number in sorted({*lakes.devices(), *(on for _, on, _ in regions)}):
        where, lake = f"{_name()}, device {number}", lakes.find(number)
        inside = [(region, one) for region, on, one in regions if on == number]
        if lake is not None:
            place = f"{where}, outside of regions" if inside else where
            notices.say(f"{place}: {_summary(lake.stats())}{_beside(lake, number)}{_annexed(lake)}")
        for region, one in inside:
            notices.say(f"{where}, {sleeping.named(region)}: {_summary(one.stats())}")
        if inside:
            highest = format_size(inside[0][1].stats()["highest_shared_bytes"])
            notices.say(f"{where}, in all: {highest} reserved at the peak")


def _name() -> str:
    rank = os.environ.get("RANK")
    return f"process {os.getpid()}" if rank is None else f"rank {rank}"


def _summary(stats: Stats) -> str:
    states = ", ".join(f"{name} {count:,}" for name, count in stats["states"].items())
    return (
        f"{format_size(stats['highest_reserved_bytes'])} reserved at the peak, "
        f"{format_size(stats['highest_live_bytes'])} live{_on_host(stats)}; "
        f"{stats['allocations']:,} allocations ({states}); "
        f"{sum(stats['driver_calls'].values()):,} driver calls{_lending(stats)}"
    )


def _on_host(stats: Stats) -> str:
    """Report memory of the host that served, if any did."""
    most_bytes = stats["highest_host_bytes"]
    return f" and up to {format_size(most_bytes)} of the host beside" if most_bytes else ""


def _beside(lake: Lake, number: int) -> str:
    """Report the memory that gmlake does not serve, if any is held at the end."""
    shares = lakes.shares_of_device(number, lake.stats()["reserved_bytes"])
    held = {
        "PyTorch's own allocator": shares.get("pytorch_bytes", 0),
        "others (CUDA, other libraries and processes)": shares.get("other_bytes", 0),
    }
    told = ", ".join(f"{format_size(size)} by {who}" for who, size in held.items() if size)
    return f"; held beside gmlake at the end: {told}" if told else ""


def _lending(stats: Stats) -> str:
    """Report the memory that streams lent each other, if any."""
    waits, borrowed_bytes = stats["cross_stream_waits"], stats["borrowed_bytes"]
    if not waits and not borrowed_bytes:
        return ""
    return f"; {format_size(borrowed_bytes)} lent between streams (waits: {waits:,})"


def _annexed(lake: Lake) -> str:
    """Add the annexes' reports."""
    return "".join(f"; {line}" for say in annexes.hooked("run report") if (line := say(lake)))
