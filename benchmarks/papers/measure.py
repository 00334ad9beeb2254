"""Replay what the papers' trainings ask of memory under every policy; look for the largest batch.

python -m tests.standin --capacity 1024GiB benchmarks/papers/measure.py DIR [--write]

DIR has the recordings of papers/record.py; what is not there is recorded. The largest batch of some
is looked for by recording them with others in DIR, three steps each; it is exact where the next one
was refused.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

import gmlake  # noqa: E402
import machine  # noqa: E402
from gmlake.replaying import ReplayResult  # noqa: E402
from gmlake.snapshots.whole import of_one_trace  # noqa: E402
from papers.jobs import JOBS, Job  # noqa: E402
from papers.record import record_apart  # noqa: E402

if TYPE_CHECKING:
    from gmlake.trace import Trace

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "caching": ("caching", {}),
    "expandable": ("expandable", {}),
    "stitch": ("stitch", {}),
    "stitch, memory": ("stitch", {"optimize_for": "memory"}),
    "plan": ("plan", {}),
    "gmlake-paper": ("gmlake-paper", {}),
    "gmlake-paper, 2 MiB": ("gmlake-paper", {"frag_limit": "2MiB"}),
}
"""Policies with their settings. `gmlake-paper` has a limit of 128 MiB unless told another."""

SEARCHED = ("stitch", "caching", "expandable", "gmlake-paper, 2 MiB", "stitch, memory")
MIB = 1 << 20
CAPACITIES = {"80GiB": 80 << 30, "141GiB": 141 << 30}
MOST_RECORDINGS = 6
"""Of one job for one capacity; what was recorded for another is looked at, too."""
SEARCH_STEPS = 3
LEAST = {False: 0.99, True: 0.98}
"""What is wanted of live / reserved with `stitch`; True: with experts."""


def replayed(trace: Trace, way: str, capacity: int | None = None) -> ReplayResult:
    """Return what a policy did."""
    policy, knobs = WAYS[way]
    return gmlake.replay(of_one_trace(trace), [policy], capacity=capacity, **knobs).results[0]


def device_of(job: Job, live_bytes: int) -> int | None:
    """Return the memory of the paper's device, or of the next larger that holds what is live."""
    sizes = [size for size in CAPACITIES.values() if size >= CAPACITIES[job.device]]
    return next((size for size in sizes if size >= live_bytes), None)


def figures(trace: Trace, capacity: int | None) -> dict[str, Any]:
    """Return what each policy did on a device; `wanted_bytes` are reserved if that is larger."""
    told = {}
    for way in WAYS:
        result = replayed(trace, way, capacity)
        told[way] = {
            "live_bytes": result.wanted_bytes,
            "reserved_bytes": result.peak_reserved_bytes,
            "wanted_bytes": replayed(trace, way).peak_reserved_bytes,
            "utilization": round(result.utilization, 4),
            "refused": result.states["oom"],
            "driver_calls": sum(result.driver_calls.values()),
            "driver_ms": round(result.driver_time_ns / 1e6, 1),
        }
        if "plan" in result.more:
            told[way]["plan"] = result.more["plan"]
    return told


@dataclass
class Batches:
    """Recordings of one job by batch."""

    job: Job
    folder: Path
    is_tiny: bool
    traces: dict[int, Trace] = field(default_factory=dict)

    def __getitem__(self, batch: int) -> Trace:
        """Return one, recorded where it was not before."""
        if batch not in self.traces:
            path = self.folder / f"{self.job.name}.batch-{batch}.gmtrace"
            job = replace(self.job, batch=batch, steps=SEARCH_STEPS)
            record_apart(job, path, is_tiny=self.is_tiny)
            self.traces[batch] = gmlake.load(path).devices[0].trace
        return self.traces[batch]


@dataclass
class Bracket:
    """Batches between which the largest one that fits lies: `fits` does, `refused` does not."""

    fits: int = 0
    refused: int | None = None

    def is_exact(self, grain: int) -> bool:
        """Whether the next batch is refused."""
        return self.refused is not None and self.refused - self.fits <= grain

    def see(self, batch: int, *, has_fitted: bool) -> None:
        """Take in what one batch did."""
        if has_fitted:
            self.fits = max(self.fits, batch)
        else:
            self.refused = min(batch, self.refused or batch)

    def within(self, guess: int, grain: int) -> int:
        """Return the batch nearest to a guess that would tell something new."""
        guess = max(guess // grain * grain, self.fits + grain)
        return guess if self.refused is None else min(guess, self.refused - grain)


def guessed(batches: Batches, way: str, capacity: int, bracket: Bracket) -> int:
    """Return the batch to try next for a policy, were its growth even.

    That is where all would be reserved, or, where that is known, halfway to where all is live: what
    lies idle may be given back first.
    """
    first, *_, last = sorted(batches.traces)

    def full(low: int, high: int) -> int:
        return int(first + (capacity - low) * (last - first) / max(1, high - low))

    reserved = full(*(replayed(batches[one], way).peak_reserved_bytes for one in (first, last)))
    live = full(*(batches[one].peak_live_bytes for one in (first, last)))
    grain = batches.job.grain
    most = max(live, bracket.fits) + grain
    most = most if bracket.refused is None else min(most, bracket.refused)
    tried = reserved // grain * grain in batches.traces
    return (bracket.fits + most) // 2 if tried or reserved >= most else reserved


def largest(batches: Batches, capacity: int) -> dict[str, Bracket]:
    """Return between which batches the largest lies with each policy."""
    grain = batches.job.grain
    found = {way: Bracket() for way in SEARCHED}

    def ask(batch: int) -> None:
        trace = batches[batch]
        for way, bracket in found.items():
            served = replayed(trace, way, capacity).first_refused is None
            bracket.see(batch, has_fitted=served)

    most = len(batches.traces) + MOST_RECORDINGS
    for batch in {*batches.traces, batches.job.batch, 2 * batches.job.batch}:
        ask(batch)
    while len(batches.traces) < most:
        way = next((way for way in SEARCHED if not found[way].is_exact(grain)), None)
        if way is None:
            break
        ask(found[way].within(guessed(batches, way, capacity, found[way]), grain))
    return found


def measure(job: Job, folder: Path, *, is_tiny: bool, is_searched: bool) -> dict[str, Any]:
    """Return the figures of one job."""
    path = folder / f"{job.name}.gmtrace"
    if not path.exists():
        record_apart(job, path, is_tiny=is_tiny)
    trace = gmlake.load(path).devices[0].trace
    told = {**asdict(job), "ranks": job.ranks, "events": len(trace.requests)}
    capacity = device_of(job, trace.peak_live_bytes)
    told |= {"capacity_bytes": capacity, "policies": figures(trace, capacity)}
    if is_searched and job.is_searched:
        batches = Batches(job, folder, is_tiny)
        told["largest"] = {
            name: {way: asdict(bracket) for way, bracket in largest(batches, size).items()}
            for name, size in CAPACITIES.items()
        }
    return told


def _missed(job: dict[str, Any], way: str) -> list[str]:
    """Return what a policy misses on a job, in words."""
    told = job["policies"]
    own = told[way]
    found = []
    if own["refused"]:
        found.append(f"{own['refused']} refused")
    elif own["utilization"] < LEAST[JOBS[job["name"]].shape.experts > 0]:
        found.append(f"{own['utilization']:.4f} of what is reserved is live")
    for other in ("caching", "expandable"):
        more = own["reserved_bytes"] - told[other]["reserved_bytes"]
        if more > 0 and not told[other]["refused"]:
            found.append(f"{more / MIB:,.0f} MiB more than {other}")
    return found


def exceptions(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return where `stitch` misses what is wanted of it, and what is left with optimize_for=memory.

    What goes with that setting is what `balanced` spends while memory is plentiful.
    """
    return [
        {"name": job["name"], "missed": missed, "left": _missed(job, "stitch, memory")}
        for job in jobs
        if (missed := _missed(job, "stitch"))
    ]


def main() -> int:
    """Replay, search, print, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="of the recordings")
    parser.add_argument("--only", nargs="+", choices=JOBS, metavar="NAME", default=list(JOBS))
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--no-search", action="store_true", help="look for no largest batch")
    parser.add_argument("--write", action="store_true", help="keep results/papers.json")
    parser.add_argument("--output", type=Path, help="keep it here instead")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for name in options.only:
        told = measure(
            JOBS[name],
            options.folder,
            is_tiny=options.size == "tiny",
            is_searched=not options.no_search,
        )
        jobs.append(told)
        print(name, *(f"{told['utilization']:.4f}" for told in jobs[-1]["policies"].values()))
        sys.stdout.flush()
    result = {"jobs": jobs, "exceptions": exceptions(jobs)}
    if options.write or options.output:
        gpu = "none: recorded on the stand-in, replayed on the simulated driver"
        print(machine.write("papers", result, path=options.output, gpu=gpu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
