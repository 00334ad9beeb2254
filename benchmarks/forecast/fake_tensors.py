#!/usr/bin/env python3
"""What PyTorch's own tracker of fake tensors says of the trainings in programs/, beside a GPU.

PYTHONPATH=LIBRARIES python benchmarks/forecast/fake_tensors.py [--write] [PROGRAM ...]

Each program runs unchanged in a process of its own under FakeTensorMode, in which tensors have no
memory, with torch.distributed._tools.mem_tracker.MemTracker around it. What a script reads of a
fake tensor raises there; so that more of them run, item() is 1, a tensor is true, and a module is
made on the device at once rather than moved there. The peak of the tracker's total is compared with
max_memory_allocated() on the GPU. The stand-in GPU is there for what asks for a device. LIBRARIES
as for compare.py.
"""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import runpy
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import machine
from forecast import compare

PROGRAMS: Final = machine.ROOT / "benchmarks" / "forecast" / "programs"
STEPS: Final = 3
LONGEST_SECONDS: Final = 300


class _EnoughError(BaseException):
    """Ends a program after its steps."""


def track(path: Path) -> dict[str, Any]:
    """Run a program with fake tensors; return the peak on the device, or why there is none."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.optim.optimizer import register_optimizer_step_post_hook

    warnings.simplefilter("ignore")
    tensor: Any = torch.Tensor
    tensor.item = lambda _: 1.0
    tensor.__bool__ = lambda _: True
    module: Any = torch.nn.Module
    module.to = module.cuda = lambda self, *_, **__: self
    tracker, steps = MemTracker(), 0

    def stepped(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps >= STEPS:
            raise _EnoughError
        tracker.reset_mod_stats()

    register_optimizer_step_post_hook(stepped)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    error = ""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), tracker, torch.device("cuda"):
            runpy.run_path(str(path), run_name="__main__")
    except _EnoughError:
        pass
    except Exception as caught:  # noqa: BLE001 (whatever the program ends with is the answer)
        error = f"{type(caught).__name__}: {str(caught).splitlines()[0][:200]}"
    peaks = {str(on): told["Total"] for on, told in tracker.get_tracker_snapshot("peak").items()}
    return {"steps": steps, "error": error, "peak_bytes": peaks.get("cuda:0", 0)}


def tracked(path: Path) -> dict[str, Any]:
    """Do that in a process of its own."""
    command = [sys.executable, "-m", "gmlake.standin", __file__, "--one", str(path)]
    told = machine.told_by(command, seconds=LONGEST_SECONDS)
    if "failed" in told:
        return {"steps": 0, "error": told["failed"][:200], "peak_bytes": 0}
    return told


def main() -> int:
    """Track each program, print the errors, and keep them with --write."""
    took, wanted, device = compare.measured()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="keep it: forecast_fake_tensors.json")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(track(options.one)))
        return 0
    if others := compare.other_versions(wanted):
        sys.stderr.write(f"fake_tensors.py: {'; '.join(others)}\n")
        return 2
    programs: dict[str, dict[str, Any]] = {}
    for name in options.programs or sorted(set(took) - {"fsdp2"}):
        began = time.monotonic()
        told = tracked(PROGRAMS / f"{name}.py")
        live = took[name]["expandable"]["peak_allocated_bytes"]
        if told["steps"] == STEPS:
            told["live"] = compare.beside(told["peak_bytes"], live)
        programs[name] = told | {"seconds": round(time.monotonic() - began, 1)}
        shown = f"{100 * told['live']['error']:+.2f} %" if "live" in told else told["error"]
        print(f"{name}: {told['steps']} steps, {shown}", flush=True)
    errors = [abs(told["live"]["error"]) for told in programs.values() if "live" in told]
    median = statistics.median(errors) if errors else None
    print(f"{len(errors)} of {len(programs)} ran; median error {median}")
    if options.write:
        figures = {"versions": wanted, "device": device, "steps": STEPS, "median_error": median}
        figures["programs"] = programs
        print(machine.write("forecast_fake_tensors", figures, gpu="none: fake tensors"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
