"""Two trainings in turn on two streams of a GPU, as in Wavelet: memory, speed, and the losses.

    PYTHONPATH=benchmarks python -m gpu.streams [--write]
    PYTHONPATH=benchmarks python -m gpu.streams --one storm --ways borrowing --steps 4

Each way of serving memory runs in processes of its own: --rounds of them, every other round in the
opposite order, since a GPU that gets warm gets slower. The losses of every run have to be those of
the first, bit for bit. A step is a forward and a backward pass of both.

--one runs a program of several streams in this process and prints what was seen, as JSON.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import gmlake
import machine
from gpu.settings import environment
from machine import end_process
from workloads import storm, streams, wavelet
from workloads.session import SCALES, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gmlake import pytorch

GIB, MIB = 1 << 30, 1 << 20
_LONGEST_RUN_SECONDS = 300.0
_ORDER_CALLS = ("event_", "stream_", "device_synchronize")
"""How the names of driver calls begin that order work, rather than take or give memory."""


@dataclass(frozen=True)
class Way:
    """What serves: an allocator of gpu.settings, and knobs of gmlake."""

    allocator: str
    knobs: dict[str, int] = field(default_factory=dict)


WAYS = {
    "default": Way("default"),
    "expandable": Way("expandable"),
    "borrowing": Way("gmlake"),
    "waitless": Way("gmlake", {"borrow_waits": 0}),
    "alone": Way(
        "gmlake",
        {
            "reuse_allow_internal_dependencies": 0,
            "reuse_allow_opportunistic": 0,
        },
    ),
}
PROGRAMS: dict[str, tuple[Callable[[Session], Any], int]] = {
    "wavelet": (partial(wavelet.train, batch=12), 0),
    "wavelet-varying": (partial(wavelet.train, batch=12, varies=True), 0),
    "prefetch": (partial(streams.train_prefetching, batch=64), 0),
    "experts": (partial(streams.train_experts, size="medium", batch=8), 0),
    "offload": (partial(streams.train_offloading, size="small", batch=4), 0),
    "storm": (partial(storm.run, rounds=1, seed=0), 4),
    "storm-2": (partial(storm.run, rounds=1, seed=1), 16),
}
"""Programs, which may return losses, and the GiB that each may take; 0: the whole device."""


# ---- in the process of a run ---------------------------------------------------------------------


class Measured(Session):
    """A session that keeps what the allocator counts at each mark, and no memory history."""

    def __post_init__(self) -> None:
        """Begin with nothing."""
        torch.manual_seed(0)
        self.lake: pytorch.Session | None = None
        self.seen: list[dict[str, Any]] = []
        self._limit_memory()

    def mark(self, label: str, *, is_trim: bool = False) -> None:
        """Keep what is counted now; the first half of the steps is not steady yet."""
        if is_trim:
            return
        torch.cuda.synchronize()
        stats = self.lake.stats() if self.lake else {}
        self.seen.append(
            {
                "label": label,
                "began": time.perf_counter(),
                "cross_stream_waits": stats.get("cross_stream_waits", 0),
                "borrowed_bytes": stats.get("borrowed_bytes", 0),
                "driver_calls": stats.get("driver_calls", {}),
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
        **{name: after[name] - before[name] for name in ("cross_stream_waits", "borrowed_bytes")},
        "memory_calls": sum(
            count for name, count in calls.items() if not name.startswith(_ORDER_CALLS)
        ),
    }


def run(name: str, way: Way, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program; return what was seen, sizes in bytes."""
    program, limit_gib = PROGRAMS[name]
    torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
    torch.utils.deterministic.fill_uninitialized_memory = False
    knobs: dict[str, Any] = dict(way.knobs)
    serving = gmlake.enabled(**knobs) if way.allocator == "gmlake" else nullcontext()
    with serving as lake:
        session = Measured(SCALES[options.size], options.steps, limit_gib * GIB or None)
        session.lake = lake
        losses = program(session)
        torch.cuda.synchronize()  # losses are read from other streams than they were made on
        stats = torch.cuda.memory_stats()
        live, reserved = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
        return {
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
            "peak_live_bytes": live,
            "peak_active_bytes": stats["active_bytes.all.peak"],
            "peak_reserved_bytes": reserved,
            "reserved_to_live": round(reserved / live, 4),
            "ooms": stats["num_ooms"],
            "steps": [_difference(*pair) for pair in pairwise(session.seen)],
            "losses": [float(loss).hex() for loss in losses or []],
        }


# ---- who starts them -----------------------------------------------------------------------------


def _late(steps: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the second half of the steps, in which memory is settled."""
    return steps[len(steps) // 2 :]


def ask(program: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own saw, or `failed`."""
    command = [sys.executable, "-m", "gpu.streams", "--one", program, "--ways", way]
    return machine.told_by(
        [*command, "--size", options.size, "--steps", str(options.steps)],
        cwd=machine.ROOT,
        env=environment(WAYS[way].allocator),
        seconds=_LONGEST_RUN_SECONDS,
    )


def measure(program: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program every way, and tell of the first round; times are medians over the rounds."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
    for number in range(options.rounds):
        for way in options.ways[:: -1 if number % 2 else 1]:
            told = ask(program, way, options)
            runs[way].append(told)
            print(f"{program}, round {number}, {way}: {told.get('failed', 'done')}", flush=True)
    expected = next(iter(runs.values()))[0].get("losses")
    summary: dict[str, Any] = {}
    for way, rounds in runs.items():
        told = next((one for one in rounds if "failed" in one), rounds[0])
        if "failed" in told:
            summary[way] = {"failed": told["failed"], "has_same_losses": False}
            continue
        same = [one.pop("losses") == expected for one in rounds]
        late = _late(told["steps"])
        seconds = [
            float(statistics.median(step["seconds"] for step in _late(one["steps"])))
            for one in rounds
        ]
        summary[way] = {
            **told,
            "per_step": {
                name: round(statistics.fmean(step[name] for step in late), 1)
                for name in ("cross_stream_waits", "borrowed_bytes", "memory_calls")
            },
            "has_same_losses": all(same),
            "rounds_seconds": seconds,
            "median_step_seconds": round(statistics.median(seconds), 4),
            "rounds_reserved_bytes": [one["peak_reserved_bytes"] for one in rounds],
        }
    return summary


def show(figures: dict[str, Any]) -> None:
    """Print one row for each way and program."""
    names = ("peak_live_bytes", "peak_reserved_bytes", "median_step_seconds", "has_same_losses")
    rows = [
        {"program": program, "way": way}
        | {name: told[name] for name in (*names, "failed") if name in told}
        | told.get("per_step", {})
        for program, runs in figures["programs"].items()
        for way, told in runs.items()
    ]
    machine.show(f"{figures['size']}, {figures['steps']} steps", rows)


def main() -> int:
    """Measure, print, and keep it with --write; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=SCALES, default="full")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=["wavelet"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_streams.json")
    parser.add_argument("--one", choices=PROGRAMS, help="this program, in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(options.one, WAYS[options.ways[0]], options)))
        end_process()
    programs = {program: measure(program, options) for program in options.programs}
    how = {name: getattr(options, name) for name in ("size", "steps", "rounds")}
    figures = {**how, "programs": programs}
    show(figures)
    every = [told for runs in programs.values() for told in runs.values()]
    if options.write or options.output:
        gpu = machine.devices_of(every)
        print(machine.write("gpu_streams", figures, path=options.output, gpu=gpu))
    return 0 if all(told["has_same_losses"] for told in every) else 1


if __name__ == "__main__":
    sys.exit(main())
