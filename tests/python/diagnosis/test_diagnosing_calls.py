"""What the collector writes is read back; programs are watched, or it is said why not."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.diagnosis import ObjectTrace, programs
from gmlake.diagnosis.calls import read_calls
from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES

if TYPE_CHECKING:
    from pathlib import Path

ALLOC, FREE, COPY, SET, KERNEL, ACCESS, NAME, PLACE = range(1, 9)


def header(*, order: int = 0x01020304, record: int = 56) -> bytes:
    return struct.pack("=16sIIQ24x", b"gmlake calls 1", order, record, 7)


def record(  # noqa: PLR0913 (each is a field)
    kind: int,
    address: int = 0,
    size: int = 0,
    *,
    name: int = 0,
    place: int = 0,
    flags: int = 0,
    stream: int = 0,
    stride: int = 0,
    repeat: int = 1,
) -> bytes:
    return struct.pack(
        "=IIIIQQQQQ", kind, name, place, flags, stream, address, size, stride or size, repeat
    )


def read(path: Path, *records: bytes) -> ObjectTrace:
    file = path / "calls.1"
    file.write_bytes(header() + b"".join(records))
    return read_calls(file, "program")


def test_runs_end_where_the_object_does(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        record(ALLOC, 0x1000, 100),
        record(SET),
        record(ACCESS, 0x1000 + 90, 50, flags=WRITES),
        record(SET),
        record(ACCESS, 0x1000, 10, flags=WRITES, stride=40, repeat=9),
        record(SET),
        record(ACCESS, 0x1000 + 10, 10, flags=WRITES, stride=10, repeat=4),
    )
    rows = trace.ranges[["offset", "size_bytes", "repeat"]].tolist()
    assert rows[0] == (90, 10, 1)
    assert rows[1] == (0, 10, 3)
    covered = np.zeros(100, bool)
    for offset, size, repeat in rows[2:]:
        assert repeat == 1 or size == 10
        covered[offset : offset + size * repeat] = True
    assert covered.sum() == 40


def test_what_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "calls.1"
    file.write_bytes(header() + record(ALLOC, 0x1000, 64) + record(FREE, 0x1000)[:30])
    assert len(read_calls(file).apis) == 1


# ---- patched kernels


def test_how_often_is_read_with_what(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        record(ALLOC, 0x1000, 100),
        record(ALLOC, 0x2000, 64),
        record(KERNEL),
        record(ACCESS, 0x1000, 4, flags=READS, name=7),
        record(ACCESS, 0x1010, 4, flags=READS, stride=8, repeat=3),
        record(ACCESS, 0x2000, 64, flags=READS),
        record(ACCESS, 0x2000, 8, flags=WRITES),
        record(ACCESS, 0x1000, 8, flags=WRITES),
    )
    assert trace.accesses[["object", "flags", "range_count"]].tolist() == [
        (0, READS, 2),
        (1, READS, 1),
        (1, WRITES, 1),
        (0, WRITES, 1),
    ]
    assert trace.ranges[["offset", "size_bytes", "repeat", "weight"]].tolist() == [
        (0, 4, 1, 7),
        (16, 4, 3, 1),
        (0, 64, 1, 1),
        (0, 8, 1, 1),
        (0, 8, 1, 1),
    ]


def test_a_launch_may_repeat_another_s_accesses(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        record(ALLOC, 0x1000, 100),
        record(ALLOC, 0x2000, 64),
        record(KERNEL, size=3),
        record(ACCESS, 0x1000, 4, flags=READS),
        record(ACCESS, 0x2000, 8, flags=WRITES),
        record(FREE, 0x2000),
        record(ALLOC, 0x2000, 32),  # another object
        record(KERNEL, 3),
        record(KERNEL, 9),
    )
    assert trace.apis["access_count"].tolist() == [0, 0, 2, 0, 0, 1, 0]
    assert trace.accesses[["object", "flags"]].tolist()[2] == (0, TOUCHES)
    assert trace.ranges[["offset", "size_bytes"]].tolist()[2] == (0, 4)


def test_notes_are_handed_on(tmp_path: Path) -> None:
    file, text, notes = tmp_path / "calls.1", b"note: some were lost", list[str]()
    file.write_bytes(header() + record(NAME, 0, len(text), name=1) + text.ljust(56, b"\0"))
    trace = read_calls(file, element_bytes=4, notes=notes)
    assert notes == ["some were lost"]
    assert len(trace.apis) == 0


def test_elements_are_as_large_as_granules(tmp_path: Path) -> None:
    file = tmp_path / "calls.1"
    file.write_bytes(header() + record(ALLOC, 0x1000, 100))
    assert read_calls(file, element_bytes=8).objects["element_bytes"].tolist() == [8]


# ---- programs


@pytest.fixture
def program() -> list[str]:
    """Does what the CUDA driver does when it starts."""
    code = (
        "import ctypes, os, sys\n"
        "ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()\n"
        "sys.exit(5)"
    )
    return [sys.executable, "-c", code]


FAKE = """
#include <stdint.h>
#include <stddef.h>
typedef struct { int site; const char *function; const void *parameters; void *result;
    const char *symbol; void *context; uint32_t uid; uint64_t *data; uint32_t id; } data;
typedef void (*callback)(void *, int, uint32_t, const data *);
static callback heard; static void *user;
int cuptiEnableCallback(uint32_t on, void *s, int domain, uint32_t function) { return 0; }
int cuptiSubscribe(void **s, callback c, void *u) { heard = c; user = u; return 0; }
__attribute__((destructor(101))) static void unused(void) {}
void work(void) {
    uint64_t address = 4096, *out = &address; int ok = 0;
    struct { uint64_t *a; size_t n; } alloc = {out, 512};
    data call = {1, "cuMemAlloc_v2", &alloc, &ok};
    heard(user, 1, 243, &call);
    struct { uint64_t a; uint32_t v; size_t n; } set = {4096, 0, 512};
    data fill = {0, "cuMemsetD8_v2", &set, &ok};
    heard(user, 1, 249, &fill);
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build a stand-in for CUPTI")
def test_a_program_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: list[str]
) -> None:
    source, library = tmp_path / "cupti.c", tmp_path / "libcupti.so"
    source.write_text(FAKE)
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    monkeypatch.setenv("GMLAKE_CUPTI", str(library))
    program[2] = program[2].replace("sys.exit", f"ctypes.CDLL({str(library)!r}).work()\nsys.exit")
    watched = programs.watch_program(program)
    assert (watched.code, watched.notes) == (5, ())
    (trace,) = watched.traces
    assert [trace.label(api) for api in range(2)] == ["alloc", "cuMemsetD8_v2"]
    assert trace.objects["size_bytes"].tolist() == [512]
    found = gmlake.find_inefficiencies(trace)
    assert "memory leak" in str(found)
    work = f"ctypes.CDLL({str(library)!r}).work()"
    program[2] = program[2].replace(
        "sys.exit(5)", f"import time; time.sleep(0.1); {work}; os.kill(os.getpid(), 9)"
    )
    watched = programs.watch_program(program)
    assert watched.code == 128 + 9
    assert [len(trace.objects) for trace in watched.traces] == [2]  # of the second call, too
    assert watched.notes == (f"signal 9 ended {program[0]}: its last calls can be lost",)


def test_a_missing_sanitizer_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: list[str]
) -> None:
    monkeypatch.setattr(programs, "_TOOLKIT", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr("os.environ", {})
    with pytest.raises(gmlake.UnsupportedError, match="pip install nvidia-cuda-sanitizer-api"):
        programs.watch_program(program, programs.Accesses())
    folder = tmp_path / "compute-sanitizer"
    folder.mkdir()
    (folder / "libsanitizer-public.so").write_bytes(b"no library")
    with pytest.raises(gmlake.UnsupportedError, match="cannot be loaded; install nvidia-cuda"):
        programs.watch_program(program, programs.Accesses())


def test_pytorch_allocates_each_tensor_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, seen = tmp_path / "libsanitizer-public.so", tmp_path / "seen"
    library.touch()
    monkeypatch.setenv("GMLAKE_SANITIZER", str(library))
    names = "PYTORCH_NO_CUDA_MEMORY_CACHING GMLAKE_SANITIZER GMLAKE_ACCESSES"
    code = f"import os; open({str(seen)!r}, 'w').write(' '.join(map(os.getenv, {names.split()})))"
    with pytest.raises(gmlake.UnsupportedError, match="did not start CUDA"):
        programs.watch_program([sys.executable, "-c", code], programs.Accesses(16, 3))
    assert seen.read_text() == f"1 {library} 16,3"
