"""Steps that need more than the device has, with the rest in memory of the host.

    PYTHONPATH=benchmarks python -m gpu.on_host [--programs NAME ...] [--write]

A program takes the same steps with room for everything, and with a ballast that leaves less than it
needs: refused without the setting `host`, slower with it. Beside them are the ways that a program
can be written: activations that wait in memory of the host (torch.autograd.graph.save_on_cpu), and
half the batch twice before each update. In `rare`, one batch of a hundred is too large.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import machine
from gpu.processes import run_ranks
from gpu.settings import environment

PROGRAMS = ("llama-1b-checkpoint", "lora", "moe")
_SHARES = (0.995, 0.98, 0.95)
_RARE, _RARE_EVERY, _RARE_STEPS = "rare", 100, 300
_WARMING = 2


def _make(name: str, steps: int, parts: int) -> Any:  # noqa: ANN401 (several kinds)
    """Make a program whose batch is divided by `parts`, with lengths that are all the longest."""
    from gpu.model import SIZES
    from gpu.programs import LLAMAS, MIXTURES, LlamaTraining, MixtureTraining, Tuning

    if name == "moe":
        sizes = replace(MIXTURES["full"], layers=6)
        return MixtureTraining(replace(sizes, batch=sizes.batch // parts))
    if name == "lora":
        tuned = replace(SIZES["1b"], layers=12)
        program: Any = Tuning(tuned, 8 // parts, steps)
        program.lengths = [tuned.longest] * steps
        return program
    llama = LLAMAS["1b"]
    program = LlamaTraining(replace(llama, batch=4 // parts), steps, has_checkpoints=True)
    program.lengths = [llama.longest] * steps
    if name == _RARE:
        program.lengths = [llama.longest // 3] * steps
        for index in range(_RARE_EVERY // 2, steps, _RARE_EVERY):
            program.lengths[index] = llama.longest
    return program


def _step(program: Any, index: int, parts: int) -> Any:  # noqa: ANN401
    """Take one step, after as many passes without an update as its batch has further parts."""
    optimizer = program.optimizer
    for _ in range(parts - 1):
        program.optimizer = SimpleNamespace(step=lambda: None, zero_grad=lambda: None)
        program.step(index)
    program.optimizer = optimizer
    return program.step(index)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Take the steps in this process; times in seconds."""
    import torch

    import gmlake
    from gpu.varying import begin, leave_only

    begin(argparse.Namespace(program=options.program, record=None, limit=0))
    warnings.simplefilter("ignore")
    parts = 2 if options.way == "accumulated" else 1
    steps = _RARE_STEPS if options.program == _RARE else options.steps
    session = gmlake.enabled(**({"host": "40GiB"} if options.way == "host" else {}))
    with session:
        torch.manual_seed(0)
        program = _make(options.program, _WARMING + steps, parts)
        for index in range(_WARMING):
            _step(program, index, parts)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    if options.leave:
        leave_only(options.leave - session.stats()["reserved_bytes"])
    told: dict[str, Any] = {"seconds": [], "losses": []}
    saving = torch.autograd.graph.save_on_cpu(pin_memory=True)
    with session, saving if options.way == "offloaded" else nullcontext():
        for index in range(_WARMING, _WARMING + steps):
            torch.manual_seed(index)
            torch.cuda.synchronize()
            began = time.perf_counter()
            try:
                loss = _step(program, index, parts)
            except torch.OutOfMemoryError as error:
                told["refused"] = str(error).partition("\n")[0]
                break
            torch.cuda.synchronize()
            told["seconds"].append(time.perf_counter() - began)
            told["losses"].append(float(loss).hex())
    stats = session.stats()
    return {
        **told,
        "live_bytes": stats["highest_live_bytes"],
        "most_host_bytes": stats["highest_host_bytes"],
        "creates": stats["driver_calls"]["create"],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def _ask(program: str, way: str, leave: int, options: argparse.Namespace) -> dict[str, Any]:
    words = ["gpu.on_host", "--child", program, way, "--leave", f"{leave}"]
    words += ["--steps", f"{options.steps}"]
    (told,) = run_ranks(words, 1, variables=environment("default"))
    row = {"program": program, "way": way, "leave_bytes": leave}
    seconds = told.pop("seconds", [])
    if "failed" in told or "refused" in told:
        row |= {name: told[name] for name in ("failed", "refused") if name in told}
    else:
        row |= told
        row["median_ms"] = round(1e3 * statistics.median(seconds), 2)
        row["total_s"] = round(sum(seconds), 2)
    shown = {name: value for name, value in row.items() if name != "losses"}
    print(json.dumps(shown), flush=True)  # the rest can take long
    return row


def compare(program: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a program in each way; losses are told as whether they equal those with room."""
    room = _ask(program, "room", 0, options)
    if "live_bytes" not in room:
        return [room]
    shares = (_SHARES[1],) if program == _RARE else options.shares
    leaves = [round(room["live_bytes"] * share) for share in shares]
    asked = [("default", leaves[0]), *(("host", leave) for leave in leaves)]
    asked += [] if program == _RARE else [("offloaded", 0), ("accumulated", 0)]
    rows = [room, *(_ask(program, way, leave, options) for way, leave in asked)]
    losses = room["losses"]
    for row in rows:
        row["share"] = round(row["leave_bytes"] / room["live_bytes"], 3)
        if "losses" in row:
            row["has_same_losses"] = row.pop("losses") == losses
            row["times"] = round(row["total_s"] / room["total_s"], 3)
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    every = (*PROGRAMS, _RARE)
    parser.add_argument("--programs", nargs="+", choices=every, default=list(every))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--shares", nargs="+", type=float, default=_SHARES, help="of the need")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_on_host.json")
    parser.add_argument("--child", nargs=2, metavar=("PROGRAM", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--leave", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        options.program, options.way = options.child
        print(json.dumps(measure(options)), flush=True)
        machine.end_process()
    rows = [row for program in options.programs for row in compare(program, options)]
    machine.show("memory of the host", rows)
    if options.write:
        gpu = machine.devices_of(row for row in rows if "device" in row)
        print(machine.write("gpu_on_host", {"rows": rows}, gpu=gpu))
    sys.exit(0)


if __name__ == "__main__":
    main()
