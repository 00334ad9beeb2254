"""Runs one program of several streams, and tells what its memory did.

    python -m workloads.measure wavelet --way borrowing --steps 6

Prints one JSON object. PyTorch's allocator can be chosen once in a process, so that each way has a
process of its own; gpu.streams starts them.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake import pytorch
from workloads import storm, streams, wavelet
from workloads.ending import end_process
from workloads.session import SCALES, Session
from workloads.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from workloads.ways import Way

GIB = 1 << 30
ORDER_CALLS = ("event_", "stream_", "device_synchronize")
"""How the names of driver calls begin that order work, rather than take or give memory."""


@dataclass(frozen=True)
class Scenario:
    """A program of several streams.

    run: the program, which may return losses. limit_gib: memory that it may take at most; 0: the
    whole device.
    """

    run: Callable[[Session], list[torch.Tensor] | None]
    limit_gib: float = 0


SCENARIOS = {
    "wavelet": Scenario(partial(wavelet.train, batch=12)),
    "wavelet-varying": Scenario(partial(wavelet.train, batch=12, varies=True)),
    "prefetch": Scenario(partial(streams.train_prefetching, batch=64)),
    "experts": Scenario(partial(streams.train_experts, size="medium", batch=8)),
    "offload": Scenario(partial(streams.train_offloading, size="small", batch=4)),
    "storm": Scenario(partial(storm.run, rounds=1, seed=0), limit_gib=4),
    "storm-2": Scenario(partial(storm.run, rounds=1, seed=1), limit_gib=16),
}


class Measured(Session):
    """A session that keeps what the allocator counts at each mark, and no memory history."""

    def __post_init__(self) -> None:
        """Begin with nothing."""
        torch.manual_seed(0)
        self.lake: pytorch.Session | None = None
        self.seen: list[dict[str, Any]] = []
        self.is_timed = False
        self._limit_memory()

    def mark(self, label: str, *, is_trim: bool = False) -> None:
        """Keep what is counted now; the first half of the steps is not steady yet."""
        if is_trim:
            return
        if self.is_timed:
            torch.cuda.synchronize()
        stats = self.lake.stats() if self.lake else {}
        calls: dict[str, int] = stats.get("driver_calls", {})
        self.seen.append(
            {
                "label": label,
                "began": time.perf_counter(),
                "reserved_bytes": torch.cuda.memory_reserved(),
                "cross_stream_waits": stats.get("cross_stream_waits", 0),
                "borrowed_bytes": stats.get("borrowed_bytes", 0),
                "deferred_free_bytes": stats.get("deferred_free_bytes", 0),
                "driver_calls": calls,
            }
        )


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    calls = {
        name: count - before["driver_calls"].get(name, 0)
        for name, count in after["driver_calls"].items()
    }
    return {
        "label": after["label"],
        "seconds": round(after["began"] - before["began"], 4),
        "reserved_bytes": after["reserved_bytes"],
        "deferred_free_bytes": after["deferred_free_bytes"],
        **{name: after[name] - before[name] for name in ("cross_stream_waits", "borrowed_bytes")},
        "memory_calls": sum(
            count for name, count in calls.items() if not name.startswith(ORDER_CALLS)
        ),
        "order_calls": sum(count for name, count in calls.items() if name.startswith(ORDER_CALLS)),
        "calls": {name: count for name, count in calls.items() if count},
    }


def _region(way: Way) -> AbstractContextManager[pytorch.Session | None]:
    knobs: dict[str, Any] = dict(way.knobs)
    return gmlake.enabled(way.policy, **knobs) if way.policy else nullcontext()


def run(name: str, way: Way, session_options: dict[str, Any], *, is_timed: bool) -> dict[str, Any]:
    """Run a scenario; return what was seen, sizes in bytes."""
    scenario = SCENARIOS[name]
    limit_bytes = int(scenario.limit_gib * GIB) or None
    with _region(way) as region:
        session = Measured(torch.device("cuda", 0), limit_bytes=limit_bytes, **session_options)
        session.lake, session.is_timed = region, is_timed
        losses = scenario.run(session)
        torch.cuda.synchronize()  # losses are read from other streams than they were made on
        stats = torch.cuda.memory_stats()
        live, reserved = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
        pairs = session.seen
        return {
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
            "peak_live_bytes": live,
            "peak_active_bytes": stats["active_bytes.all.peak"],
            "peak_reserved_bytes": reserved,
            "reserved_to_live": round(reserved / live, 4),
            "ooms": stats["num_ooms"],
            "steps": [_difference(*pair) for pair in pairwise(pairs)],
            "losses": [float(loss).hex() for loss in losses or []],
        }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Run one program of several streams.")
    parser.add_argument("name", choices=SCENARIOS)
    parser.add_argument("--way", choices=WAYS, default="borrowing")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--timed", action="store_true", help="wait for the device at each step")
    parser.add_argument("--deterministic", action="store_true", help="repeatable losses")
    options = parser.parse_args()
    if options.deterministic:
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
        torch.utils.deterministic.fill_uninitialized_memory = False
    how = {"scale": SCALES[options.scale], "steps": options.steps}
    json.dump(run(options.name, WAYS[options.way], how, is_timed=options.timed), sys.stdout)


if __name__ == "__main__":
    main()
    end_process()
