#!/usr/bin/env python3
"""At which rank gmlake.diagnose() names the mistake of each small program, and what else it says.

    python benchmarks/diagnosis/diagnosed_mistakes.py [--write]
    python -m tests.standin --capacity 80GiB benchmarks/diagnosis/diagnosed_mistakes.py --write

The programs are those of examples/diagnosis/mistakes.py; the second command runs them on the
stand-in GPU. A rank of 0: the line is not named.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))
import torch
from examples.diagnosis import mistakes

import machine

if TYPE_CHECKING:
    from collections.abc import Callable


def told(program: Callable[[], None]) -> dict[str, Any]:
    """Run a program and say what is said of it."""
    with contextlib.redirect_stdout(io.StringIO()):
        report = mistakes.diagnosed(program)
    line = mistakes.marked_line(program)
    lines = [advice.line for advice in report.advice]
    peak = max(found.peak_bytes for found in report.devices.values())
    return {
        "line": Path(line).name,
        "rank": lines.index(line) + 1 if line in lines else 0,
        "said": report.advice[0].cause if report.advice else "",
        "saves_percent": round(100 * report.advice[0].saving_bytes / peak) if lines else 0,
        "other_lines": len(set(lines) - {line}),
        "peak_mib": peak >> 20,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    figures = {name: told(program) for name, program in mistakes.PROGRAMS.items()}
    print("| program | line | rank | what is said | of the peak | other lines |")
    print("|---|---|---:|---|---:|---:|")
    for name, one in figures.items():
        print(
            f"| {name.replace('_', ' ')} | {one['line'] or 'none'} | {one['rank'] or '-'} "
            f"| {one['said'] or 'nothing'} | -{one['saves_percent']} % | {one['other_lines']} |"
        )
    if options.write:
        gpu = torch.cuda.get_device_name()
        machine.write(
            "diagnosed_mistakes", {"torch": torch.__version__, "figures": figures}, gpu=gpu
        )


if __name__ == "__main__":
    main()
