"""Runs any CUDA program with the collector inside and reads its log.

The CUDA driver itself loads the collector, where CUDA_INJECTION64_PATH names it; CUPTI tells the
collector of every call. Both come from outside: what is missing is named.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gmlake.diagnosis.calls import read_calls
from gmlake.diagnosis.object_trace import ObjectTrace
from gmlake.errors import UnsupportedError

COLLECTOR: Final = Path(__file__).absolute().parent / "libgmlake_collect.so"
"""The library that the CUDA driver loads into a watched program."""

_CUPTI_FOLDERS: Final = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")
_CUPTI_NAMES: Final = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")
_TOOLKITS: Final = ("/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64")
_ADVICE: Final = (
    "no CUPTI library was found: pip install nvidia-cuda-cupti, or name the file in GMLAKE_CUPTI"
)


@dataclass(frozen=True)
class WatchedProgram:
    """A program that ran. code: its exit code. traces: of each process that called the driver."""

    code: int
    traces: tuple[ObjectTrace, ...]


def watch_program(command: Sequence[str]) -> WatchedProgram:
    """Run a command to its end and return its processes' accesses to their objects.

    The program runs as without the collector, with its own input and output. Raises
    UnsupportedError where CUPTI or the collector is missing or refused to work, or the program
    called no CUDA driver, FileNotFoundError if there is no such program, and TraceError for
    calls that contradict themselves.
    """
    if not COLLECTOR.exists():
        raise UnsupportedError(f"{COLLECTOR.name} was not built: it needs Linux")
    cupti = find_cupti(os.environ)
    with tempfile.TemporaryDirectory(prefix="gmlake-calls-") as folder:
        base = Path(folder) / "calls"
        variables = {
            **os.environ,
            "CUDA_INJECTION64_PATH": str(COLLECTOR),
            "GMLAKE_CALLS": str(base),
            "GMLAKE_CUPTI": str(cupti),
        }
        code = _run(command, variables)
        files = sorted(base.parent.iterdir())
        traces = tuple(read_calls(path, _name(command, path, files)) for path in files)
    if not traces:
        raise UnsupportedError(f"{command[0]} did not start CUDA, so there was nothing to watch")
    return WatchedProgram(code, traces)


def find_cupti(variables: Mapping[str, str]) -> Path:
    """Return the CUPTI library to use: named by GMLAKE_CUPTI, installed by pip, or of a toolkit."""
    if named := variables.get("GMLAKE_CUPTI"):
        if not Path(named).exists():
            raise UnsupportedError(f"GMLAKE_CUPTI names {named}, which is not there")
        return Path(named)
    for folder in _folders(variables):
        for name in _CUPTI_NAMES:
            if (folder / name).exists():
                return folder / name
    raise UnsupportedError(_ADVICE)


def _folders(variables: Mapping[str, str]) -> Iterator[Path]:
    for root in sys.path:
        for folder in _CUPTI_FOLDERS:
            yield Path(root) / folder
    if home := variables.get("CUDA_HOME"):
        yield Path(home) / "extras" / "CUPTI" / "lib64"
    for toolkit in _TOOLKITS:
        yield Path(toolkit)
    for folder in filter(None, variables.get("LD_LIBRARY_PATH", "").split(":")):
        yield Path(folder)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Return the exit code, 128 and the signal's number where one ended the program."""
    process = subprocess.Popen(command, env=variables)  # noqa: S603 (the user's own command)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the program got it, too, and decides what it means
            continue
        return code if code >= 0 else 128 - code


def _name(command: Sequence[str], path: Path, files: Sequence[Path]) -> str:
    name = Path(command[0]).name
    return name if len(files) == 1 else f"{name}, process {path.suffix[1:]}"
