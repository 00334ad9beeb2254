"""Patched kernels on a GPU: planted inefficiencies are found, random accesses recorded as made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.diagnosis import ObjectTrace, Pattern, programs
from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES
from gmlake.lake import device_describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.gpu

SOURCES = Path(__file__).parent / "accesses"
AT_FAULT = 2 << 20  # bytes of the object with the inefficiency
CLEAN = [
    "copy",
    "kernel",
    "in_place",
    "shared",
    "vectors",
    "gather",
    "atomics",
    "strided",
    "bytes",
    "managed",
]
BYTES, DRAWS = 16384, 1000  # of random.cu


def compile_program(name: str, folder: Path) -> str:
    made = folder / name
    command = [
        "nvcc",
        "-w",
        "-lineinfo",
        "-arch=native",
        str(SOURCES / f"{name}.cu"),
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True)
    return str(made)


def watch(*command: str) -> ObjectTrace:
    watched = programs.watch_program(command, programs.Accesses())
    assert watched.code == 0
    assert watched.notes == ()
    (trace,) = watched.traces
    return trace


def found_in(trace: ObjectTrace) -> list[tuple[str, int]]:
    findings = gmlake.find_inefficiencies(trace).findings
    return [(one.pattern, one.size_bytes) for one in findings]


def recorded(trace: ObjectTrace, api: int, number: int) -> NDArray[Any]:
    """Return the kinds of each byte of an object, and how often each word is accessed."""
    kinds, counts = np.zeros(BYTES, np.uint8), np.zeros(BYTES // 4, np.uint32)
    first = int(trace.apis["first_access"][api])
    for access in trace.accesses[first : first + int(trace.apis["access_count"][api])]:
        if access["object"] != number:
            continue
        assert access["flags"] != TOUCHES
        start = int(access["first_range"])
        for row in trace.ranges[start : start + int(access["range_count"])]:
            for run in range(int(row["repeat"])):
                at = int(row["offset"] + run * row["stride_bytes"])
                end = at + int(row["size_bytes"])
                kinds[at:end] |= int(access["flags"]) & (READS | WRITES)
                counts[at // 4 : (end + 3) // 4] += np.uint32(row["weight"])
    return np.concatenate((kinds, counts.view(np.uint8)))


def differing_draws(trace: ObjectTrace, truth: bytes) -> list[int]:
    """Return the kernels whose recorded bytes, or counts of words accessed as a whole, differ."""
    number = trace.objects["size_bytes"].tolist().index(BYTES)
    kernels = [api for api in range(len(trace.apis)) if "play" in trace.label(api)]
    expected = np.frombuffer(truth, np.uint8).reshape(len(kernels), 2 * BYTES)
    differing = []
    for draw, api in enumerate(kernels):
        got = recorded(trace, api, number)
        kinds = expected[draw][:BYTES]
        words = kinds.reshape(-1, 4)
        whole = (words == words[:, :1]).all(axis=1)
        counts = [row[BYTES:].view(np.uint32)[whole] for row in (got, expected[draw])]
        if not np.array_equal(got[:BYTES], kinds) or not np.array_equal(*counts):
            differing.append(draw)
    return differing


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not shutil.which("nvcc"):
        pytest.skip("needs nvcc to build programs")
    try:
        device_describe("cuda")
        programs.find_library("GMLAKE_SANITIZER", {})
    except gmlake.Error as error:
        pytest.skip(str(error))


def test_each_planted_inefficiency_is_found(tmp_path: Path) -> None:
    program = compile_program("planted", tmp_path)
    for pattern in Pattern:
        name = pattern.words.replace(" ", "_").replace("-", "_")
        assert (pattern.words, AT_FAULT) in found_in(watch(program, name)), name


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    program = compile_program("planted", tmp_path)
    for name in CLEAN:
        assert found_in(watch(program, f"clean_{name}")) == [], name


def test_random_accesses_are_recorded_as_made(tmp_path: Path) -> None:
    program, truth = compile_program("random", tmp_path), tmp_path / "truth"
    trace = watch(program, str(DRAWS), str(truth))
    assert differing_draws(trace, truth.read_bytes()) == []
