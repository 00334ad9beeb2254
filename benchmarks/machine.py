"""What a result has to say about the run that made it: command, versions, hardware, date."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """Return the commit, marked where the tree differs; results change no other result.

    GMLAKE_COMMIT names it where only the files of a clean tree were taken to another machine.
    """
    if named := os.environ.get("GMLAKE_COMMIT"):
        return named
    name = _git("describe", "--always")
    has_changed = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return f"{name}-dirty" if name and has_changed else name or "unknown"


def _git(*words: str) -> str:
    command = ("git", "-C", str(ROOT), *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip()


def describe(gpu: str = "none: every figure here is of the simulated driver") -> dict[str, Any]:
    """Return the circumstances of this run; `gpu` names the device that was measured."""
    return {
        "command": " ".join(["python", sys.argv[0].removeprefix(f"{ROOT}/"), *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gmlake": gmlake.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": gpu,
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return how many seconds of processor time something takes, and what it returns."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def devices_of(ways: dict[str, dict[str, Any]]) -> str:
    """Return the names of the devices that ways measured; one that `failed` names none."""
    devices = {told["device"] for told in ways.values() if "failed" not in told}
    return ", ".join(sorted(devices)) or "none"


def write(
    name: str, figures: dict[str, Any], *, path: Path | None = None, **circumstances: str
) -> Path:
    """Write benchmarks/results/NAME.json, or a path, with what describe() takes; return where."""
    path = path or RESULTS / f"{name}.json"
    told = {"run": describe(**circumstances), **figures}
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return path
