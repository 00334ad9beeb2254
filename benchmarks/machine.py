"""What a result has to say about the run that made it: command, versions, hardware, date."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.table import Table

import gmlake
from commit import commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _command() -> str:
    """Return what was run, from the checkout on, wherever that is."""
    program = Path(sys.argv[0]).resolve()
    name = program.relative_to(ROOT).as_posix() if ROOT in program.parents else sys.argv[0]
    return " ".join(["python", name, *sys.argv[1:]])


def describe(gpu: str = "none: every figure here is of the simulated driver") -> dict[str, Any]:
    """Return the circumstances of this run; `gpu` names the device that was measured."""
    return {
        "command": _command(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gmlake": gmlake.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": gpu,
    }


def gpu_and_driver() -> tuple[str, str]:
    """Return the name of the GPU and the version of its driver, or that nobody says."""
    command = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        return "unknown: there is no nvidia-smi", "unknown"
    name, _, driver = done.stdout.partition("\n")[0].partition(", ")
    return name or "unknown", driver or "unknown"


def used_bytes() -> int:
    """Return what of the device is in use, by whomever."""
    import torch

    free_bytes, size_bytes = torch.cuda.mem_get_info()
    return int(size_bytes - free_bytes)


def devices_of(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return the names of the devices that runs measured; one that `failed` names none."""
    devices = {told["device"] for told in runs if "failed" not in told}
    return ", ".join(sorted(devices)) or "none"


def write(
    name: str, figures: dict[str, Any], *, path: Path | None = None, **circumstances: str
) -> Path:
    """Write benchmarks/results/NAME.json, or a path, with what describe() takes; return where."""
    path = path or RESULTS / f"{name}.json"
    told = {"run": describe(**circumstances), **figures}
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return path


def end_process(status: int = 0) -> NoReturn:
    """End with a status, without ending the interpreter.

    Before CPython 3.14 a thread that asks for the interpreter while that ends is unwound, and C++
    terminates the process for it. Where a backward pass ran Python hooks, a thread of PyTorch does
    so now and then, with any allocator.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _cell(value: Any) -> str:  # noqa: ANN401 (of JSON)
    if isinstance(value, float):
        return f"{value:,.5g}"
    return f"{value:,}" if type(value) is int else str(value)


def show(title: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows below the names of what they tell; floats with five digits that count."""
    rows = list(rows)
    columns = dict.fromkeys(name for row in rows for name in row)
    table = Table(*(name.replace("_", " ") for name in columns), title=title)
    for row in rows:
        table.add_row(*(_cell(row.get(name, "")) for name in columns))
    Console(width=max(Console().width, 140)).print(table)


def answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the JSON object of the next line that a process prints; exits where it has ended."""
    assert process.stdout is not None  # noqa: S101 (it is a pipe)
    line = process.stdout.readline()
    if not line:
        sys.exit("a process has ended early")
    told: dict[str, Any] = json.loads(line)
    return told


def told_by(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run a process; return the JSON object of its last line, {} without one, or `failed`: why."""
    try:
        done = subprocess.run(  # noqa: S603
            command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {seconds} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"failed": last}
    told: dict[str, Any] = json.loads((done.stdout.splitlines() or ["{}"])[-1])
    return told
