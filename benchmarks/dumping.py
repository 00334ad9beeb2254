"""A recording of a million events: dumped by PyTorch, read, saved and drawn by gmlake.

python benchmarks/dumping.py [--events N] [--write]

Runs in .venv; what is recorded runs on the stand-in GPU with the real PyTorch of
.venv-standin, which records Python's stacks. Seconds are of the processor.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
from collections import deque
from pathlib import Path

import gmlake
import machine
from gmlake.pictures import render_page

LIVE = 200
EVENTS_OF_A_TENSOR = 3


def record(events: int, path: str) -> float:
    """Let PyTorch record tensors that come and go, and dump it; return how long the dump took."""
    import torch

    memory = torch.cuda.memory
    torch.empty(1, device="cuda")
    memory._record_memory_history(stacks="python", max_entries=2 * events)  # noqa: SLF001
    held: deque[torch.Tensor] = deque()
    for number in range(events // EVENTS_OF_A_TENSOR):
        held.append(torch.empty((number % 97 + 1) * 4096, dtype=torch.uint8, device="cuda"))
        if len(held) > LIVE:
            del held[number % LIVE]
    return machine.timed(lambda: memory._dump_snapshot(path))[0]  # noqa: SLF001


def main() -> None:
    """Record in a process of its own, then do the rest here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="keep it as results/dumping.json")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        print(json.dumps(record(options.events, options.record)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.pickle"
        python = str(machine.ROOT / ".venv-standin" / "bin" / "python")
        command = [python, "-m", "tests.standin", "--capacity", "80GiB", __file__]
        command += ["--events", str(options.events), "--record", str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        seconds: dict[str, float] = {"PyTorch dumps": json.loads(done.stdout)}
        seconds["gmlake reads"], seen = machine.timed(lambda: gmlake.load(path))
        seconds["gmlake saves"], _ = machine.timed(lambda: seen.save(Path(folder) / "again.pickle"))
        seconds["gmlake draws"], page = machine.timed(lambda: render_page(seen.report()))
        figures = {
            "events": len(seen[0].events),
            "file_bytes": path.stat().st_size,
            "page_bytes": len(page),
            "seconds": {what: round(took, 2) for what, took in seconds.items()},
            "highest_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        }
    print(json.dumps(figures, indent=1))
    if options.write:
        print(machine.write("dumping", figures, gpu="none: the stand-in GPU"))


if __name__ == "__main__":
    main()
