"""How often the inferred categories of an ordinary PyTorch snapshot are right, program by program.

python benchmarks/inferred.py [--only NAME] [--write]

Runs in .venv; what is recorded runs on the stand-in GPU with the PyTorch of .venv-standin. Each
program of benchmarks/labelled.py is recorded twice, from its first allocation on and
behind three of its five steps, and each is judged with the call paths of the file and with none.
The truth is what the program noted of its own tensors, see known.py. Seconds are of
the processor, for a long run of the first program.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import gmlake
import machine
from gmlake.snapshots.inferred import infer
from gmlake.snapshots.sites import OwnLines

sys.path.insert(0, str(machine.ROOT))
from known import UNKNOWN, known_categories

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.inferred import Inferred
    from gmlake.snapshots.model import DeviceSnapshot

PROGRAMS: Final = (
    "GPT, AdamW",
    "SGD with momentum, gradients set to zero",
    "recomputation",
    "gradient accumulation, varying lengths",
    "fused AdamW, cleared before the step",
    "Adam one by one, float16 with a scaler",
    "evaluation in between",
    "LoRA",
    "convolutions",
    "closure",
    "two networks",
    "out of memory",
    "without modules",
    "distributed, gradients in buckets",
)
HELD_OUT: Final = (
    "vision transformer, RMSprop, averaged",
    "recurrent, Adagrad",
    "BERT, NAdam, nested passes",
    "compiled",
    "generation",
)
"""Written when the rules were there; the last of them has led to one more for no call paths."""

SKIPPED: Final = {"whole": 0, "from step 4": 3}
STEPS: Final = 5
LONG_STEPS: Final = 530
SETTINGS: Final = {
    "out of memory": ("--capacity", "20GiB"),
    "distributed, gradients in buckets": ("--backed", "--capacity", "2GiB"),
}


def record(name: str, path: Path, skipped: int, steps: int = STEPS) -> list[Any]:
    """Record a program in a process of its own; return what it noted."""
    python = str(machine.ROOT / ".venv-standin" / "bin" / "python")
    settings = SETTINGS.get(name, ("--capacity", "80GiB"))
    command = [python, "-m", "tests.standin", *settings]
    command += [str(machine.ROOT / "benchmarks" / "labelled.py")]
    command += [name, str(path), str(skipped), str(steps)]
    done = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, cwd=machine.ROOT, text=True, check=True
    )
    notes: list[Any] = json.loads(done.stdout)["notes"]
    return notes


def judge(
    seen: DeviceSnapshot, found: Inferred | None, truth: NDArray[np.int8]
) -> dict[str, float | None]:
    """Return shares of bytes: at the peak, and over time as bytes times events lived.

    surely: of the bytes over time, those said to be sure; right_of_sure: which part of these is.
    All are None where nothing was inferred.
    """
    if found is None:
        return dict.fromkeys(("right_at_peak", "right_over_time", "surely", "right_of_sure"))
    lives = seen.lives
    held = (lives.size_bytes * (lives.died - np.maximum(lives.born, 0))).astype(np.float64)
    at_peak = np.zeros(len(held))
    at_peak[seen.peak.ids] = lives.size_bytes[seen.peak.ids]
    is_right, is_sure = found.categories == truth, found.is_sure
    return {
        "right_at_peak": share(at_peak, is_right),
        "right_over_time": share(held, is_right),
        "surely": share(held, is_sure),
        "right_of_sure": share(held[is_sure], is_right[is_sure]),
    }


def share(weight: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float | None:
    """Return which part of a weight was chosen; None of nothing."""
    total = float(weight.sum())
    return round(float(weight[chosen].sum()) / total, 4) if total else None


def judged(name: str, folder: Path) -> dict[str, Any]:
    """Record a program and judge what is inferred of it."""
    result: dict[str, Any] = {"is_held_out": name in HELD_OUT}
    for what, skipped in SKIPPED.items():
        path = folder / "memory.pickle"
        notes = record(name, path, skipped)
        loaded = gmlake.load(path)
        seen = loaded[0]
        truth = known_categories(seen, notes)
        of_peak = seen.lives.size_bytes[seen.peak.ids].astype(np.float64)
        result[what] = {
            "events": len(seen.events),
            "peak_bytes": seen.peak.live_bytes,
            "unknown_at_peak": share(of_peak, truth[seen.peak.ids] == UNKNOWN),
            "with call paths": judge(seen, infer(seen, OwnLines(loaded.sites)), truth),
            "without": judge(seen, infer(seen, OwnLines({})), truth),
        }
    return result


def seconds_of_long(folder: Path) -> dict[str, Any]:
    """Infer the categories of a long recording; return how long that takes."""
    path = folder / "long.pickle"
    record(PROGRAMS[0], path, 0, LONG_STEPS)
    loaded = gmlake.load(path)
    seen = loaded[0]
    seen.peak  # noqa: B018 (worked out once, for every picture)
    took = {
        what: round(machine.timed(partial(infer, seen, lines))[0], 2)
        for what, lines in (("with call paths", OwnLines(loaded.sites)), ("without", OwnLines({})))
    }
    return {"events": len(seen.events), "seconds": took}


def main() -> None:
    """Judge each program, print a line for it, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=(*PROGRAMS, *HELD_OUT))
    parser.add_argument("--write", action="store_true", help="keep it as results/inferred.json")
    options = parser.parse_args()
    programs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in (options.only,) if options.only else (*PROGRAMS, *HELD_OUT):
            programs[name] = judged(name, Path(folder))
            print(name, json.dumps(programs[name], indent=1), flush=True)
        long = None if options.only else seconds_of_long(Path(folder))
        print(long)
    if options.write and not options.only:
        figures = {"programs": programs, "long": long}
        print(machine.write("inferred", figures, gpu="none: the stand-in GPU"))


if __name__ == "__main__":
    main()
