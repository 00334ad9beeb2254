"""What each driver call costs on a device, by chunk size and count; needs a GPU.

python benchmarks/driver_costs.py [--program build/bench/benchmarks/c/bench_driver] [--write]
"""

from __future__ import annotations

import argparse
import json
import subprocess

import machine

PROGRAM = machine.ROOT / "build/bench/benchmarks/c/bench_driver"


def main() -> None:
    """Measure, print, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--program", default=PROGRAM, help="the C micro-benchmark")
    parser.add_argument("--driver", default="cuda", help="cuda, or host or sim to try it out")
    parser.add_argument("--write", action="store_true", help="keep it as results/driver_costs.json")
    arguments = parser.parse_args()
    done = subprocess.run(  # noqa: S603
        [arguments.program, arguments.driver], stdout=subprocess.PIPE, text=True, check=True
    )
    measured = json.loads(done.stdout)
    machine.show(measured["device"], measured["calls"])
    if arguments.write:
        print(machine.write("driver_costs", measured, gpu=measured["device"]))


if __name__ == "__main__":
    main()
