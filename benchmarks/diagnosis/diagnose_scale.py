#!/usr/bin/env python3
"""How long a diagnosis of a million calls on 100,000 objects takes, in processor seconds.

python benchmarks/diagnosis/diagnose_scale.py [--calls 1000000] [--objects 100000] [--write]

Objects come and go at random, asked for in 500 lines of a program; each kernel reads two that live
and writes one, a tenth of them a part; every tenth call is a copy or a set. One thread, median of
--rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gmlake
from gmlake.diagnosis import Part

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import machine
from gmlake.diagnosis import ObjectTrace, TraceBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
LIVE = 400
LINES = 500


def random_trace(calls: int, objects: int, streams: int) -> ObjectTrace:
    """Return a trace of that many calls, allocations and frees among them."""
    chance = random.Random(7)  # noqa: S311 (no secret)
    builder = TraceBuilder(f"{calls:,} calls, {streams} streams")
    live: list[int] = []
    made = 0
    while builder.api_count < calls - len(live):
        stream = chance.randrange(streams)
        if made < objects and (len(live) < LIVE or chance.random() < objects / calls):
            line = chance.randrange(LINES)
            frames = (f"layer  model.py:{line}", "step  train.py:7")
            size = chance.randint(1, 64) * MIB
            live.append(builder.alloc(size, element_bytes=4, stream=stream, frames=frames))
            made += 1
        elif len(live) > LIVE:
            builder.free(live.pop(chance.randrange(len(live))), stream=stream)
        else:
            _call(builder, chance, live, stream)
    for number in live:
        builder.free(number)
    return builder.build()


def _call(builder: TraceBuilder, chance: random.Random, live: list[int], stream: int) -> None:
    first, second, target = (chance.choice(live) for _ in range(3))
    kind = chance.random()
    written: Any = target
    if kind < 0.1:  # noqa: PLR2004 (a tenth)
        written = Part(target, ((0, MIB // 4, MIB // 2, 2),))
    if kind > 0.95:  # noqa: PLR2004 (a twentieth each)
        builder.set("set", writes=[written], stream=stream)
    elif kind > 0.9:  # noqa: PLR2004
        builder.copy("copy", writes=[written], stream=stream)
    else:
        builder.kernel("kernel", reads={first, second}, writes=[written], stream=stream)


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """Return the median of processor seconds."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return round(statistics.median(taken), 3)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for streams in (1, 4):
        trace = random_trace(options.calls, options.objects, streams)
        diagnosis = gmlake.find_inefficiencies(trace)
        figures[f"{streams} streams"] = {
            "calls": len(trace.apis),
            "objects": len(trace.objects),
            "accesses": len(trace.accesses),
            "findings": len(diagnosis.records),
            "find_s": seconds(partial(gmlake.find_inefficiencies, trace), options.rounds),
            "print_s": seconds(diagnosis.__str__, 1),
        }
        print(figures[f"{streams} streams"])
    if options.write:
        load = {"load_average": [round(one, 2) for one in os.getloadavg()]}
        machine.write("diagnose_scale", {**load, "figures": figures}, gpu="none: no device is used")


if __name__ == "__main__":
    main()
