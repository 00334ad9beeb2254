"""Record what the papers' trainings ask of memory, as rank 0 of them, on the stand-in GPU.

python -m tests.standin --capacity 1024GiB benchmarks/papers/record.py --output DIR [--only NAME]

Writes DIR/NAME.gmtrace for each of papers/jobs.py, without addresses. Each is a process of its own.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

# Memory history has a private name only.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

from gpu.varying import Seen, record  # noqa: E402
from papers.jobs import JOBS, Job  # noqa: E402
from workloads.ending import end_process  # noqa: E402

_MOST_EVENTS = 100_000_000
_LONGEST_SECONDS = 600


def run(job: Job, path: Path, *, is_tiny: bool) -> dict[str, Any]:
    """Record one job in this process; return its figures."""
    import torch

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(
        enabled="all", context=None, stacks="python", max_entries=_MOST_EVENTS
    )
    torch.manual_seed(0)
    shape = job.shape.tiny() if is_tiny else job.shape
    if job.paper == "gmlake":
        from papers.tuning import Tuning

        program: Any = Tuning(job, shape)
    else:
        from papers.stages import Stage

        program = Stage(job, shape)
    built = torch.cuda.memory_allocated()
    seen, peaks = Seen(), []
    for index in range(job.steps):
        torch.cuda.reset_peak_memory_stats()
        seen.step(program, index, None)
        stats = torch.cuda.memory_stats()
        counts = (stats[f"allocation.all.{what}"] for what in ("allocated", "freed"))
        seen.events.append(sum(counts))
        peaks.append(torch.cuda.max_memory_allocated())
    told = {"built_bytes": built, "kept_bytes": torch.cuda.memory_allocated(), "peaks": peaks}
    return {"job": job.name, "batch": job.batch, **told, **record(path, seen)}


def record_apart(job: Job, path: Path, *, is_tiny: bool = False) -> dict[str, Any]:
    """Record a job in a process of its own, on the stand-in that this process runs on."""
    command = [sys.executable, __file__, "--job", json.dumps(asdict(job))]
    command += ["--output", str(path), *(["--size", "tiny"] if is_tiny else [])]
    kept = {name: text for name, text in os.environ.items() if "ALLOC_CONF" not in name}
    settings = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(  # noqa: S603
        command,
        env=kept | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST_SECONDS,
    )
    if done.returncode:
        sys.exit(f"papers.record: {job.name}: {done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Record all jobs, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True, help="folder for the recordings")
    parser.add_argument("--only", nargs="+", choices=JOBS, metavar="NAME", default=list(JOBS))
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    is_tiny = options.size == "tiny"
    if options.job:
        job = Job(**json.loads(options.job))
        print(json.dumps(run(job, options.output, is_tiny=is_tiny)))
        end_process()
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        told = record_apart(JOBS[name], options.output / f"{name}.gmtrace", is_tiny=is_tiny)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
