"""Programs of DrGPUM's paper under `gmlake diagnose --accesses`, on a GPU: found, peak, overhead.

python benchmarks/accesses.py FOLDER [NAME ...]

FOLDER holds the programs, built as their authors say, one folder each, with their input;
NAME-advised is a copy with the advised change made. Needs compute-sanitizer and
libsanitizer-public.so. results/gpu_accesses.json has each program as soon as it is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import gmlake
import machine
from gmlake.diagnosis import programs

RUNS = 3
LONGEST = 120  # seconds of a run


class Program(NamedTuple):
    """run: the command line. patterns, reduction: of the paper's Tables 1 and 4, %."""

    run: str
    patterns: str
    reduction: int | None = None


PROGRAMS = {
    "2mm": Program("./2mm", "EA LD RA", 40),
    "3mm": Program("./3mm", "EA LD RA TI", 57),
    "gramschmidt": Program("./gramschmidt", "EA LD TI NUAF SA", 33),
    "bicg": Program("./bicg", "EA LD RA NUAF"),
    "huffman": Program("./huffman in", "EA LD RA UA TI", 67),
    "dwt2d": Program("./dwt2d in.bmp -d 192x192 -f -5 -l 3", "EA LD RA UA TI DW", 48),
    "xsbench": Program("./xsbench -m event -s small -g 100 -l 34", "ML OA", 63),
    "mdock": Program("./mdock -lfile input/7cpa/7cpa_ligand.pdbqt -nrun 1", "EA LD UA TI OA", 64),
    "smc": Program("./smc", "EA LD TI DW", 50),
    "darknet": Program(
        "./darknet detector test coco.data yolov3-tiny.cfg weights dog.jpg", "DW EA UA", 83
    ),
}
SHORT = {
    "early allocation": "EA",
    "late deallocation": "LD",
    "redundant allocation": "RA",
    "unused allocation": "UA",
    "memory leak": "ML",
    "temporary idleness": "TI",
    "dead write": "DW",
    "overallocation": "OA",
    "non-uniform access frequency": "NUAF",
    "structured access": "SA",
}


def seconds(command: list[str], code: int, variables: dict[str, str] | None = None) -> float:
    """Return how long a command takes, the median of three; -1: other exit code, or too long."""
    taken = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        try:
            done = subprocess.run(  # noqa: S603 (a program of the table)
                command, capture_output=True, timeout=LONGEST, check=False, env=variables
            )
        except subprocess.TimeoutExpired:
            return -1
        if done.returncode != code:
            return -1
        taken.append(time.perf_counter() - begun)
    return round(statistics.median(taken), 3)


def collected(granule: int) -> dict[str, str]:
    """Return the environment of a watched program, whose log nobody reads."""
    calls = tempfile.mktemp(prefix="gmlake-overhead-")  # noqa: S306 (a new name)
    return programs.environment(Path(calls), programs.Accesses(granule))


def diagnose(command: list[str]) -> dict[str, Any]:
    """Return the patterns' objects, the peak, and what it is with the changes."""
    watched = programs.watch_program(command, programs.Accesses())
    (trace,) = watched.traces
    begun = time.perf_counter()
    found = gmlake.find_inefficiencies(trace)
    objects = {(SHORT[one.pattern], one.object) for one in found.findings}
    return {
        "code": watched.code,
        "objects": dict(sorted(Counter(name for name, _ in objects).items())),
        "peak_bytes": found.peak_bytes,
        "fixed_peak_bytes": found.fixed_peak_bytes,
        "calls": len(trace.apis),
        "ranges": len(trace.ranges),
        "diagnosis_seconds": round(time.perf_counter() - begun, 2),
        "notes": list(watched.notes),
    }


def measure(name: str, program: Program) -> dict[str, object]:
    """Return what is found in a program, and how long it takes under each tool."""
    command = program.run.split()
    memcheck = ["compute-sanitizer", "--tool", "memcheck", *command]
    found = diagnose(command)
    code = found["code"]
    result = {"paper": program.patterns, "paper_reduction": program.reduction, **found}
    advised = Path("..", f"{name}-advised")
    if advised.exists():
        kept = Path.cwd()
        os.chdir(advised)
        result["advised_peak_bytes"] = diagnose(command)["peak_bytes"]
        os.chdir(kept)
    result["seconds"] = {
        "plain": seconds(command, code),
        "objects": seconds(command, code, collected(0)),
        "bytes": seconds(command, code, collected(4)),
        "memcheck": seconds(memcheck, code),
    }
    return result


def main() -> None:
    """Measure the programs that are named, or all."""
    root = Path(sys.argv[1]).absolute()
    results: dict[str, object] = {}
    gpu, _ = machine.gpu_and_driver()
    for name in sys.argv[2:] or PROGRAMS:
        os.chdir(root / name)
        try:
            results[name] = measure(name, PROGRAMS[name])
        except (subprocess.CalledProcessError, gmlake.Error) as error:
            results[name] = {
                "error": str(error)[:300],
                "output": str(getattr(error, "stderr", ""))[-500:],
            }
        print(name, json.dumps(results[name]), flush=True)
        machine.write("gpu_accesses", {"programs": results}, gpu=gpu)


if __name__ == "__main__":
    main()
