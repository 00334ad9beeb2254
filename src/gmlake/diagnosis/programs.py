"""Runs any CUDA program with the collector inside and reads its log.

The CUDA driver itself loads the collector, where CUDA_INJECTION64_PATH names it; CUPTI tells the
collector of every call. Where kernels are to be patched NVIDIA's Sanitizer API does both. All come
from outside: what is missing is named.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gmlake.diagnosis.calls import read_calls
from gmlake.diagnosis.object_trace import ObjectTrace
from gmlake.errors import UnsupportedError

COLLECTOR: Final = Path(__file__).absolute().parent / "libgmlake_collect.so"
"""The library that the CUDA driver loads into a watched program."""


class _Library(NamedTuple):
    """A library of NVIDIA's: its names, its folders in a wheel and in a toolkit."""

    package: str
    names: tuple[str, ...]
    wheels: tuple[str, ...]
    toolkits: tuple[str, ...]


_LIBRARIES: Final = {
    "GMLAKE_CUPTI": _Library(
        "nvidia-cuda-cupti",
        ("libcupti.so.13", "libcupti.so.12", "libcupti.so"),
        ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib"),
        ("extras/CUPTI/lib64", "lib64"),
    ),
    "GMLAKE_SANITIZER": _Library(
        "nvidia-cuda-sanitizer-api",
        ("libsanitizer-public.so",),
        ("nvidia/cu13/lib", "nvidia/cuda_sanitizer_api/lib"),
        ("compute-sanitizer", "extras/compute-sanitizer"),
    ),
}
_TOOLKIT: Final = "/usr/local/cuda"
_SIGNALLED: Final = 128  # plus the signal, as shells have it


class Accesses(NamedTuple):
    """How closely kernels are looked at.

    granule_bytes: how often is counted for each so many, a power of two; 0: which objects a kernel
    accesses, not which bytes. every: each so-many-th launch of a kernel with the same objects.
    """

    granule_bytes: int = 4
    every: int = 1


@dataclass(frozen=True)
class WatchedProgram:
    """A program that ran.

    code: its exit code. traces: of each process that called the driver. notes: what could not be
    found out, a line each.
    """

    code: int
    traces: tuple[ObjectTrace, ...]
    notes: tuple[str, ...] = ()


def watch_program(command: Sequence[str], accesses: Accesses | None = None) -> WatchedProgram:
    """Run a command to its end and return its processes' accesses to their objects.

    accesses: patch kernels, to see what they read and write; None: guess it from their parameters.
    The program runs as without the collector, with its own input and output; one of PyTorch
    allocates each tensor on its own where kernels are patched. Raises UnsupportedError where a
    library or the collector is missing or refused to work, or the program called no CUDA driver,
    FileNotFoundError if there is no such program, and TraceError for calls that contradict
    themselves.
    """
    if not COLLECTOR.exists():
        raise UnsupportedError(f"{COLLECTOR.name} was not built: it needs Linux")
    notes: list[str] = []
    element_bytes = (accesses and accesses.granule_bytes) or 1
    with tempfile.TemporaryDirectory(prefix="gmlake-calls-") as folder:
        base = Path(folder) / "calls"
        code = _run(command, environment(base, accesses))
        files = sorted(base.parent.iterdir())
        traces = tuple(
            read_calls(path, _name(command, path, files), element_bytes=element_bytes, notes=notes)
            for path in files
        )
    if code > _SIGNALLED:
        notes.append(f"signal {code - _SIGNALLED} ended {command[0]}: its last calls can be lost")
    if not traces:
        raise UnsupportedError(f"{command[0]} did not start CUDA, so there was nothing to watch")
    return WatchedProgram(code, traces, tuple(dict.fromkeys(notes)))


def environment(calls: Path, accesses: Accesses | None) -> dict[str, str]:
    """Return the environment of a watched program; its processes write files named `calls`.*."""
    collector = {"CUDA_INJECTION64_PATH": str(COLLECTOR), "GMLAKE_CALLS": str(calls)}
    if accesses is None:
        return {
            **os.environ,
            **collector,
            "GMLAKE_CUPTI": str(find_library("GMLAKE_CUPTI", os.environ)),
            "GMLAKE_SANITIZER": "",
        }
    return {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        **os.environ,
        **collector,
        "GMLAKE_SANITIZER": str(find_library("GMLAKE_SANITIZER", os.environ)),
        "GMLAKE_ACCESSES": f"{accesses.granule_bytes},{accesses.every}",
    }


def find_library(variable: str, variables: Mapping[str, str]) -> Path:
    """Return what GMLAKE_CUPTI or GMLAKE_SANITIZER names; else of pip, or of a CUDA toolkit."""
    library = _LIBRARIES[variable]
    if named := variables.get(variable):
        if not Path(named).exists():
            raise UnsupportedError(f"{variable} names {named}, which is not there")
        return Path(named)
    for folder in _folders(library, variables):
        for name in library.names:
            if (folder / name).exists():
                return folder / name
    raise UnsupportedError(
        f"{library.names[0]} was not found: pip install {library.package}, "
        f"or name the file in {variable}"
    )


def _folders(library: _Library, variables: Mapping[str, str]) -> Iterator[Path]:
    for root in sys.path:
        for wheel in library.wheels:
            yield Path(root) / wheel
    for toolkit in filter(None, (variables.get("CUDA_HOME"), _TOOLKIT)):
        for folder in library.toolkits:
            yield Path(toolkit) / folder
    for path in filter(None, variables.get("LD_LIBRARY_PATH", "").split(":")):
        yield Path(path)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Return the exit code, _SIGNALLED and the signal's number where one ended the program."""
    process = subprocess.Popen(command, env=variables)  # noqa: S603 (the user's own command)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the program got it, too, and decides what it means
            continue
        return code if code >= 0 else _SIGNALLED - code


def _name(command: Sequence[str], path: Path, files: Sequence[Path]) -> str:
    name = Path(command[0]).name
    return name if len(files) == 1 else f"{name}, process {path.suffix[1:]}"
