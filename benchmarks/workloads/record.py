#!/usr/bin/env python3
"""Record the memory of real programs under PyTorch's own allocator.

    python benchmarks/workloads/record.py --allocator default --output recordings/default

Each workload runs in a process of its own, since PyTorch's allocator is configured once for a
process. Beside NAME.pickle, a snapshot as torch.cuda.memory._dump_snapshot writes it with every
event since the first allocation, lies NAME.json: torch.cuda.memory_stats() and mem_get_info() at
marks inside the run, with the number of events before each, and what it ran on. The same command
works on a GPU and, through `python -m gmlake.standin`, on a machine without one.
"""

# PyTorch may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import end_process
from workloads import gpt, storm, streams, vision
from workloads.session import SCALES, Session, Workload

ALLOCATOR_VARIABLES = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}
SETTINGS = {"default": "", "expandable": "expandable_segments:True"}


def _training(size: str, batch: int) -> dict[str, Workload]:
    name = size if size == "1.3b" else f"gpt2-{size}"
    twice = partial(gpt.train, size=size, batch=2 * batch, has_checkpoints=True)
    return {
        name: Workload(partial(gpt.train, size=size, batch=batch)),
        f"{name}-checkpoint": Workload(twice),
    }


WORKLOADS: dict[str, Workload] = {
    **_training("small", 8),
    **_training("medium", 8),
    **_training("1.3b", 4),
    "varying": Workload(partial(gpt.train_varying, size="medium", batch=8, has_checkpoints=False)),
    "varying-checkpoint": Workload(
        partial(gpt.train_varying, size="medium", batch=16, has_checkpoints=True)
    ),
    "accumulation": Workload(partial(gpt.train_accumulating, size="small", batch=4, parts=4)),
    "evaluation": Workload(partial(gpt.train_and_evaluate, size="small", batch=4)),
    "out-of-memory": Workload(
        partial(gpt.train_until_out_of_memory, size="small", batch=2),
        limit_gib={"full": 16, "short": 8},
    ),
    "tight": Workload(
        partial(gpt.train_in_tight_memory, size="small", batch=8),
        limit_gib={"full": 10, "short": 5},
    ),
    "prefetch": Workload(partial(streams.train_prefetching, batch=64)),
    "experts": Workload(partial(streams.train_experts, size="medium", batch=8)),
    "offload": Workload(partial(streams.train_offloading, size="small", batch=4)),
    "convolutions": Workload(partial(vision.train_convolutions, batch=64)),
    "storm": Workload(partial(storm.run, rounds=3, seed=0), limit_gib={"full": 4, "short": 2}),
}


def run(name: str, options: argparse.Namespace) -> None:
    """Run a workload in this process, and write NAME.pickle and NAME.json."""
    workload, scale = WORKLOADS[name], SCALES[options.scale]
    session = Session(scale, options.steps, workload.limit_bytes(scale))
    workload.run(session)
    snapshot, notes = session.finish()
    what = {"workload": name, "allocator": options.allocator}
    how = {"scale": options.scale, "steps": options.steps}
    with (options.output / f"{name}.pickle").open("wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    path = options.output / f"{name}.json"
    path.write_text(json.dumps({**what, **how, **notes}, indent=1) + "\n", encoding="utf-8")
    print(
        f"{name}: {notes['events']} events in {notes['seconds']} s on {notes['device']}, "
        f"{notes['peak_allocated_bytes'] / 2**30:.2f} GiB allocated, "
        f"{notes['peak_reserved_bytes'] / 2**30:.2f} GiB reserved"
    )


def record(name: str, options: argparse.Namespace) -> bool:
    """Run a workload in a process of its own; return whether it succeeded."""
    setting = SETTINGS[options.allocator]
    kept = {key: value for key, value in os.environ.items() if key not in ALLOCATOR_VARIABLES}
    command = [sys.executable, __file__, "--one", name, "--allocator", options.allocator]
    command += ["--output", str(options.output), "--scale", options.scale]
    done = subprocess.run(  # noqa: S603
        [*command, "--steps", str(options.steps)],
        env=kept | ({"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}),
        check=False,
    )
    if done.returncode:
        print(f"record: {name} failed with status {done.returncode}", file=sys.stderr, flush=True)
    return done.returncode == 0


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in WORKLOADS:
            reason = f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}"
            raise argparse.ArgumentTypeError(reason)
    return names


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--allocator", choices=SETTINGS, default="default")
    parser.add_argument("--output", type=Path, required=True, help="folder for the recordings")
    parser.add_argument("--only", type=_names, default=list(WORKLOADS), help="a,b: these workloads")
    parser.add_argument("--steps", type=int, default=4, help="training steps, or the like")
    parser.add_argument(
        "--scale", choices=SCALES, default="full", help="short: fewer layers of full size"
    )
    parser.add_argument("--one", choices=WORKLOADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(options.one, options)
        end_process()
    options.output.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.only if not record(name, options)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
