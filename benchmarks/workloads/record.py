#!/usr/bin/env python3
"""Record the memory of real programs under PyTorch's own allocator.

    python benchmarks/workloads/record.py --allocator default --output recordings/default

Each workload runs in a process of its own, since PyTorch's allocator is configured once for a
process. Beside NAME.pickle, a snapshot as torch.cuda.memory._dump_snapshot writes it with every
event since the first allocation, lies NAME.json: torch.cuda.memory_stats() and mem_get_info() at
marks inside the run, with the number of events before each, and what it ran on. The same command
works on a GPU and, through `python -m gmlake.standin`, on a machine without one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOCATOR_VARIABLES = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}
SETTINGS = {"default": "", "expandable": "expandable_segments:True"}
NAMES = (
    "gpt2-small",
    "gpt2-small-checkpoint",
    "gpt2-medium",
    "gpt2-medium-checkpoint",
    "1.3b",
    "1.3b-checkpoint",
    "varying",
    "varying-checkpoint",
    "accumulation",
    "evaluation",
    "out-of-memory",
    "tight",
    "decode",
    "prefetch",
    "experts",
    "offload",
    "convolutions",
    "lora",
    "storm",
)


def environment(allocator: str) -> dict[str, str]:
    """Return the environment of a recorded process."""
    kept = {name: value for name, value in os.environ.items() if name not in ALLOCATOR_VARIABLES}
    paths = [str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": SETTINGS[allocator]} if SETTINGS[allocator] else {}
    return {
        **kept,
        **settings,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HF_HUB_OFFLINE": "1",
    }


def record(name: str, allocator: str, output: Path, options: list[str]) -> bool:
    """Run one workload; return whether it succeeded."""
    command = [sys.executable, "-m", "workloads.run", name, "--allocator", allocator]
    command += ["--output", str(output), *options]
    done = subprocess.run(command, env=environment(allocator), check=False)  # noqa: S603
    if done.returncode:
        print(f"record: {name} failed with status {done.returncode}", file=sys.stderr, flush=True)
    return done.returncode == 0


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            reason = f"no workload is called {name!r}; there are {', '.join(NAMES)}"
            raise argparse.ArgumentTypeError(reason)
    return names


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Record the memory of real programs under PyTorch's own allocator.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--allocator", choices=SETTINGS, default="default")
    parser.add_argument("--output", type=Path, required=True, help="folder for the recordings")
    parser.add_argument("--only", type=_names, default=list(NAMES), help="a,b: these workloads")
    parser.add_argument("--steps", type=int, default=4, help="training steps, or the like")
    parser.add_argument(
        "--scale",
        choices=("full", "short", "tiny"),
        default="full",
        help="short: fewer layers of full size; tiny: small enough for a CPU",
    )
    parser.add_argument("--device", default="cuda", help="cpu: only try whether they run")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    passed_on = ["--steps", str(options.steps), "--scale", options.scale]
    passed_on += ["--device", options.device]
    output = options.output.resolve()
    results = [record(name, options.allocator, output, passed_on) for name in options.only]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
