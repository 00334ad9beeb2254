"""Training steps under PyTorch's allocators and gmlake: reserved memory, speed, largest batch.

    PYTHONPATH=benchmarks python -m gpu.compare [--write]

Each run is gpu.train in a process of its own. The largest batch is searched for with most of the
device taken away before the run begins, so that every allocator has the same memory left and no
step takes long.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import ALLOCATORS

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_LONGEST_RUN_SECONDS = 240


@dataclass(frozen=True)
class Plan:
    """How much to run.

    steps, batch: of the measured run. few: steps of a run that only tries whether a batch fits.
    left_bytes: of the device, for such a run.
    """

    size: str
    steps: int
    batch: int
    few: int
    left_bytes: int


PLANS = {
    "1b": Plan("1b", steps=24, batch=16, few=8, left_bytes=16 * GIB),
    "tiny": Plan("tiny", steps=6, batch=4, few=3, left_bytes=GIB // 4),
}


def environment(allocator: str) -> dict[str, str]:
    """Return what a run sees: its allocator's settings, and a deterministic cuBLAS."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
    paths = [str(machine.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator]} if ALLOCATORS[allocator] else {}
    return {
        **kept,
        **settings,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }


def run(allocator: str, plan: Plan, steps: int, batch: int, left_bytes: int = 0) -> dict[str, Any]:
    """Return what gpu.train printed, or `failed` with its last line."""
    command = [sys.executable, "-m", "gpu.train", "--allocator", allocator, "--size", plan.size]
    command += ["--steps", str(steps), "--batch", str(batch), "--leave", str(left_bytes)]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            env=environment(allocator),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_RUN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"fits": False, "failed": f"took longer than {_LONGEST_RUN_SECONDS} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"fits": False, "failed": f"exit code {done.returncode}: {last}"}
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def largest(fits: Callable[[int], bool], guess: int) -> int:
    """Return the largest number that fits, 0 if 1 does not; `guess` only saves questions."""
    low, high, step = 0, 0, 1  # low fits, high does not; 0: not known
    at = max(1, guess)
    while high == 0 or high - low > 1:
        if fits(at):
            low = at
            at = at + step if high == 0 else (low + high) // 2
        else:
            high = at
            at = max(at - step, 1) if low == 0 else (low + high) // 2
        step *= 2
    return low


def largest_batch(allocator: str, plan: Plan, measured: dict[str, Any]) -> dict[str, Any]:
    """Search for the largest batch of a run with `left_bytes` free."""
    tried: dict[str, bool] = {}
    told: dict[str, Any] = {}

    def fits(batch: int) -> bool:
        outcome = run(allocator, plan, plan.few, batch, plan.left_bytes)
        if "failed" in outcome:
            told["failed"] = outcome["failed"]
        print(f"{allocator}: batch {batch} {'fits' if outcome['fits'] else 'does not'}", flush=True)
        tried[str(batch)] = outcome["fits"]
        return bool(outcome["fits"])

    per_sequence = (measured["peak_allocated_bytes"] - measured["model_bytes"]) / plan.batch
    guess = int((plan.left_bytes - measured["model_bytes"]) / per_sequence)
    return {"batch": largest(fits, guess), "tried": tried, **told}


def compare(plan: Plan, allocators: list[str], *, searches: bool) -> dict[str, Any]:
    """Run everything; the losses of each must be those of the first."""
    runs: dict[str, dict[str, Any]] = {}
    for allocator in allocators:
        told = run(allocator, plan, plan.steps, plan.batch)
        runs[allocator] = told
        print(f"{allocator}: {told.get('failed') or told.get('message') or 'trained'}", flush=True)
        if told["fits"] and searches:
            told["largest"] = largest_batch(allocator, plan, told)
    expected = runs[allocators[0]].get("losses")
    for told in runs.values():
        told["has_same_losses"] = expected is not None and told.pop("losses", None) == expected
    versions = [told["versions"] for told in runs.values() if "versions" in told]
    return {
        "versions": versions[0] if versions else {},
        "size": plan.size,
        "batch": plan.batch,
        "steps": plan.steps,
        "left_bytes": plan.left_bytes,
        "losses": expected,
        "runs": runs,
    }


def show(figures: dict[str, Any]) -> None:
    """Print one row for each allocator."""
    title = (
        f"{figures['size']}, batch {figures['batch']}, {figures['steps']} steps; sizes in GiB; "
        f"largest batch in {figures['left_bytes'] / GIB:.2f} GiB"
    )
    columns = ("allocator", "allocated", "reserved", "used", "device", "steps/s", "batch", "losses")
    table = Table(*columns, title=title)
    for allocator, told in figures["runs"].items():
        if not told["fits"]:
            table.add_row(allocator, told.get("failed") or told["message"])
            continue
        table.add_row(
            allocator,
            f"{told['peak_allocated_bytes'] / GIB:.3f}",
            f"{told['peak_reserved_bytes'] / GIB:.3f}",
            f"{told['utilization']:.4f}",
            f"{told['device_bytes'] / GIB:.3f}",
            f"{told['steps_per_second']:.2f}",
            str(told.get("largest", {}).get("batch", "")),
            "same" if told["has_same_losses"] else "DIFFER",
        )
    Console().print(table)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in ALLOCATORS:
            reason = f"no allocator is called {name!r}; there are {', '.join(ALLOCATORS)}"
            raise argparse.ArgumentTypeError(reason)
    return names


def main() -> int:
    """Measure, print, and keep it with --write; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=PLANS, default="1b")
    parser.add_argument("--allocators", type=_names, default=list(ALLOCATORS), help="a,b: these")
    parser.add_argument("--no-search", action="store_true", help="leave out the largest batch")
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_training.json")
    options = parser.parse_args()
    figures = compare(PLANS[options.size], options.allocators, searches=not options.no_search)
    show(figures)
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if options.write:
        devices = {told["device"] for told in figures["runs"].values() if told["fits"]}
        print(machine.write("gpu_training", figures, gpu=", ".join(sorted(devices)) or "none"))
    runs = figures["runs"].values()
    return 0 if all(told["fits"] and told["has_same_losses"] for told in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
