"""What recording and publishing cost: allocate+free with them on against off, in one run.

make bench && .venv-standin/bin/python benchmarks/recording_costs.py [--program FILE] [--write]

"core" is the C interface alone; "python" is Lake.allocate() and Lake.free(), with a site set before
each pair; "torch" is torch.empty() and del through gmlake's hooks on the stand-in GPU; "step" is a
training step of a small GPT there, whose kernels take no time: host code alone. The ways take turns
in rounds; a ratio is the median over rounds of that round's ratio.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    Rounds = dict[str, list[float]]
    Figures = dict[str, dict[str, Any]]

PROGRAM = Path("build/bench/benchmarks/c/bench_recording")
SIZE_BYTES = 20 << 20
MAX_EVENTS = 1 << 16
ROUNDS, PAIRS = 51, 5000
TORCH_ROUNDS, STEPS = 15, 10
TORCH_SIZES = {"512 B": 512, "20 MiB": SIZE_BYTES}
WAYS: dict[str, dict[str, Any] | None] = {"off": None, "record": {}, "frames": {"frames": True}}
"""What gmlake.record() is given; None: it is not called."""


def time_pairs(lake: gmlake.Lake, *, has_site: bool) -> float:
    """Return ns per pair of one round."""
    allocate, free, set_site = lake.allocate, lake.free, _core.set_site
    start = time.perf_counter_ns()
    for _ in range(PAIRS):
        if has_site:
            set_site(7)
        free(allocate(SIZE_BYTES))
    return (time.perf_counter_ns() - start) / PAIRS


def measure_python() -> Rounds:
    """Return ns per pair of each round, with and without a history."""
    lakes = {way: gmlake.Lake("sim", capacity="1TiB") for way in ("off", "history", "sites")}
    rounds: Rounds = {way: [] for way in lakes}
    for way, lake in lakes.items():
        lake.keep_history(0 if way == "off" else MAX_EVENTS)
        for _ in range(6):
            time_pairs(lake, has_site=False)
    names = list(lakes)
    for _ in range(ROUNDS):
        for way in names:
            rounds[way].append(time_pairs(lakes[way], has_site=way == "sites"))
        names = [*names[1:], names[0]]  # none is always the first
    for lake in lakes.values():
        lake.close()
    return rounds


# ---- through PyTorch, in a process of its own


def take_turns(work: Callable[[], None], warm_up: int, count: int, **options: object) -> Rounds:
    """Return ns of `work`, the median of `count` times, for each round and way.

    warm_up: how often it runs before, so that every page of the ring is there.
    """
    rounds: Rounds = {way: [] for way in WAYS}
    names = list(WAYS)
    for _ in range(TORCH_ROUNDS):
        for way in names:
            chosen = WAYS[way]
            if chosen is not None:
                gmlake.record(MAX_EVENTS, **chosen, **options)  # type: ignore[arg-type]
            for _ in range(warm_up):
                work()
            times = []
            for _ in range(count):
                start = (
                    time.process_time_ns()
                )  # with the thread of the backward pass, but no other program
                work()
                times.append(time.process_time_ns() - start)
            gmlake.stop_recording()
            rounds[way].append(statistics.median(times))
        names = [*names[1:], names[0]]
    return rounds


def measure_torch() -> dict[str, Rounds]:
    """Return ns per pair and per step, by scenario."""
    import torch

    gmlake.enable("stitch")
    gc.disable()
    empty, kind = torch.empty, torch.uint8
    found = {}
    for name, size_bytes in TORCH_SIZES.items():

        def batch(size_bytes: int = size_bytes) -> None:
            for _ in range(PAIRS):
                tensor = empty(size_bytes, dtype=kind, device="cuda")
                del tensor

        rounds = take_turns(batch, 2 + MAX_EVENTS // (3 * PAIRS), 3)
        found[f"torch {name}"] = {
            way: [ns / PAIRS for ns in times] for way, times in rounds.items()
        }
    found["step"] = measure_steps()
    return found


def measure_steps() -> Rounds:
    """Return ns per training step of a GPT with 2 layers."""
    import torch

    sys.path.insert(0, str(machine.ROOT))
    from examples.train_gpt import GPT, Config, language_loss, random_batch

    config = Config(layers=2, width=256, heads=4, context=128, vocab=1000)
    device = torch.device("cuda")
    with device:
        model = GPT(config, has_checkpoints=False)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        language_loss(model, random_batch(config, 4, config.context, device)).backward()
        optimizer.step()

    return take_turns(step, 3, STEPS, model=model)


def measure_elsewhere() -> dict[str, Rounds]:
    """Return the same from a process of its own on the stand-in."""
    command = (sys.executable, "-m", "tests.standin", "--capacity", "80GiB", __file__, "--inside")
    variables = {name: text for name, text in os.environ.items() if "ALLOC_CONF" not in name}
    variables["PYTHONWARNINGS"] = "ignore"
    done = subprocess.run(  # noqa: S603
        command, cwd=machine.ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Rounds] = json.loads(done.stdout)
    return found


# ---- the whole


def summarise(rounds: Rounds) -> Figures:
    """Return the median ns and the median ratio to `off`, by way."""
    return {
        way: {
            "median_ns": round(statistics.median(times), 1),
            "ratio_to_off": round(
                statistics.median(
                    time / off for time, off in zip(times, rounds["off"], strict=True)
                ),
                3,
            ),
        }
        for way, times in rounds.items()
    }


def measure_all(program: Path) -> dict[str, Figures]:
    """Run every part that can be run here."""
    done = subprocess.run(  # noqa: S603
        [machine.ROOT / program], stdout=subprocess.PIPE, text=True, check=True
    )
    figures = {f"core {name}": summarise(found) for name, found in json.loads(done.stdout).items()}
    figures["python exact"] = summarise(measure_python())
    if find_spec("torch"):
        figures |= {name: summarise(rounds) for name, rounds in measure_elsewhere().items()}
    else:
        print("PyTorch is not there: its part is left out", file=sys.stderr)
    return figures


def main() -> None:
    """Run everything, print it, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--program", type=Path, default=PROGRAM, help="the C micro-benchmark")
    parser.add_argument("--write", action="store_true", help="keep it as results/recording.json")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measure_torch()))
        return
    load = [round(value, 2) for value in os.getloadavg()]
    figures = measure_all(arguments.program)
    table = Table("what", "way", "ns, median", "ratio to off")
    for name, ways in figures.items():
        for way, found in ways.items():
            table.add_row(name, way, f"{found['median_ns']:,.1f}", f"{found['ratio_to_off']:.3f}")
    Console().print(table)
    if arguments.write:
        memory = {
            "bytes_per_event": _core.HISTORY_EVENT_BYTES,
            "events": MAX_EVENTS,
            "bytes": _core.HISTORY_EVENT_BYTES * MAX_EVENTS,
            "bytes_per_held_piece": 96,
        }
        circumstances = {"load_before": load, "memory": memory, "figures": figures}
        gpu = "none: the simulated driver; the stand-in GPU for torch and step"
        machine.write("recording", circumstances, gpu=gpu)


if __name__ == "__main__":
    main()
