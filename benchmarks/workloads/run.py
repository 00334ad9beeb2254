"""Runs one workload in this process: python -m workloads.run NAME ... (record.py starts it)."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path

import torch

from workloads.catalog import WORKLOADS
from workloads.ending import end_process
from workloads.session import SCALES, Session


def main() -> None:
    """Run the workload; write NAME.pickle and NAME.json unless it ran on the CPU."""
    parser = argparse.ArgumentParser(description="Run one workload and record its memory.")
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--allocator", required=True)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    workload, scale = WORKLOADS[options.name], SCALES[options.scale]
    device = torch.device(options.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", 0)
    session = Session(device, scale, options.steps, workload.limit_bytes(scale))
    workload.run(session)
    if not session.is_recording:
        print(f"{options.name}: ran on the CPU, nothing recorded")
        return
    snapshot, notes = session.finish()
    what = {"workload": options.name, "help": workload.help, "allocator": options.allocator}
    how = {"scale": options.scale, "steps": options.steps}
    with (options.output / f"{options.name}.pickle").open("wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    path = options.output / f"{options.name}.json"
    path.write_text(json.dumps({**what, **how, **notes}, indent=1) + "\n", encoding="utf-8")
    print(
        f"{options.name}: {notes['events']} events in {notes['seconds']} s on {notes['device']}, "
        f"{notes['peak_allocated_bytes'] / 2**30:.2f} GiB allocated, "
        f"{notes['peak_reserved_bytes'] / 2**30:.2f} GiB reserved"
    )


if __name__ == "__main__":
    main()
    end_process()
