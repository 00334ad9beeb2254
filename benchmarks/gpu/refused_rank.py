"""A sharded training whose rank 1 is refused memory, and what `gmlake report` says of it.

    gmlake run --record FOLDER/ -m torch.distributed.run --nproc-per-node 2 -m gpu.refused_rank
    PYTHONPATH=benchmarks python -m gpu.refused_rank --write FOLDER

Rank 1 may hold no more than what it has after the first steps and a little; its sequences get
longer, so it runs out in a later step, and torchrun ends the other rank. The second command keeps
the report as a result, and fails unless it names that rank.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import distributed

import machine
from gmlake.jobs.folder import read_folder
from gmlake.jobs.report import report_of
from gpu import forked, programs

_REFUSED = 1
_FREE_STEPS = 3
_SPARE = 1.02
_MARGIN_BYTES = 1 << 20


def train(size: str, steps: int, backend: str) -> None:
    """Train in this rank; rank 1 gets a limit after the first, short steps."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(backend)
    program = programs.ShardedTraining(programs.LLAMAS["tiny" if size == "tiny" else "2b"], steps)
    program.lengths = sorted(program.lengths)
    for step in range(steps):
        if step == _FREE_STEPS and distributed.get_rank() == _REFUSED:
            torch.cuda.empty_cache()
            allowed = _SPARE * torch.cuda.max_memory_allocated() + _MARGIN_BYTES
            total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / total))
        program.step(step)
        torch.cuda.synchronize()
    distributed.destroy_process_group()


def keep(folder: Path) -> None:
    """Write the report as a result. Raises SystemExit if it does not name the rank."""
    began = time.perf_counter()
    made = report_of(read_folder(folder))
    seconds = time.perf_counter() - began
    told = made.to_dict() | {"folder": folder.name}
    sizes = [path.stat().st_size for path in folder.iterdir()]
    names = {device.name for rank in made.job.ranks for device in rank.devices}
    figures = {
        "versions": forked.versions(),
        "file_bytes": sizes,
        "read_s": seconds,
        "report": told,
    }
    print(machine.write("gpu_report", figures, gpu=f"2 x {', '.join(sorted(names))}"))
    refused = {refusal["rank"] for refusal in told["refusals"]}
    if refused != {_REFUSED} or told["missing"] or told["unreadable"]:
        raise SystemExit(f"rank {_REFUSED} is refused, and the report says {refused or 'none'}")


def main() -> None:
    """Train, or keep what the ranks left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backend", default="nccl", help="of torch.distributed (nccl)")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.write:
        keep(options.write)
    else:
        train(options.size, options.steps, options.backend)


if __name__ == "__main__":
    main()
