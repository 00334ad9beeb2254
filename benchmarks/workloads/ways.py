"""The ways in which memory can be served to a program of several streams, each in a process.

PyTorch's allocator is chosen once in a process, so that each way needs its own. Needs no PyTorch.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import machine
from gpu.settings import environment_with

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_RUN_SECONDS = 300


@dataclass(frozen=True)
class Way:
    """What serves.

    help: half a line about it. setting: what PyTorch's allocator is told; "": nothing. policy:
    gmlake's; "" where PyTorch serves. knobs: of the policy.
    """

    help: str
    setting: str = ""
    policy: str = ""
    knobs: dict[str, int | str] = field(default_factory=dict)


_NEVER_ORDERED: dict[str, int | str] = {
    "reuse_follow_event_dependencies": 0,
    "reuse_allow_internal_dependencies": 0,
}
_NOTHING = {**_NEVER_ORDERED, "reuse_allow_opportunistic": 0}
WAYS = {
    "default": Way("PyTorch"),
    "expandable": Way("PyTorch, expandable segments", "expandable_segments:True"),
    "borrowing": Way("gmlake", policy="stitch"),
    "opportunistic": Way("gmlake, only what is done", policy="stitch", knobs=_NEVER_ORDERED),
    "waitless": Way(
        "gmlake, waits only before a refusal", policy="stitch", knobs={"borrow_waits": 0}
    ),
    "alone": Way("gmlake, no borrowing", policy="stitch", knobs=_NOTHING),
}


def run_apart(name: str, way: str, options: Sequence[str]) -> dict[str, Any]:
    """Run workloads.measure in a process of its own; return what it printed, or `failed`."""
    command = [sys.executable, "-m", "workloads.measure", name, "--way", way, *options]
    return machine.told_by(
        command,
        cwd=machine.ROOT,
        env=environment_with(WAYS[way].setting),
        seconds=_LONGEST_RUN_SECONDS,
    )


def per_step(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of the second half of the steps, in which memory is settled."""
    late = steps[len(steps) // 2 :]
    counted = ("cross_stream_waits", "borrowed_bytes", "memory_calls", "order_calls")
    return {name: round(sum(step[name] for step in late) / len(late), 1) for name in counted}
