"""What the collector writes is read back; programs are watched, or it is said why not."""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake.diagnosis import programs
from gmlake.diagnosis.calls import read_calls
from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES, ApiKind
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ALLOC, FREE, COPY, SET, KERNEL, ACCESS, NAME, PLACE = range(1, 9)
HEADERS = ROOT / ".venv-standin" / "lib"


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


def named(number: int, text: str) -> bytes:
    data = text.encode()
    return record(NAME, size=len(data), name=number) + data + bytes(-len(data) % 56)


def placed(number: int, *names: int) -> bytes:
    data = struct.pack(f"={len(names)}I", *names)
    return record(PLACE, size=len(names), place=number) + data + bytes(-len(data) % 56)


def read(path: Path, *records: bytes) -> gmlake.ObjectTrace:
    file = path / "calls.1"
    file.write_bytes(header() + b"".join(records))
    return read_calls(file, "program")


def test_objects_calls_and_places(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        named(1, "cuMemAlloc  libcuda.so.1+0x10"),
        named(2, "make_buffers  app+0x123"),
        named(3, "square" * 20),
        placed(1, 1, 2),
        record(ALLOC, 0x1000, 256, place=1),
        record(ALLOC, 0x2000, 512),
        record(COPY, name=3),
        record(ACCESS, 0x1080, 64, flags=WRITES),
        record(KERNEL, name=3, stream=9, place=1),
        record(ACCESS, 0x1000, 256, flags=TOUCHES),
        record(ACCESS, 0x2000, 16, flags=READS, stride=64, repeat=8),
        record(FREE, 0x1000),
        record(ALLOC, 0x1000, 128),
    )
    kinds = [ApiKind(int(kind)) for kind in trace.apis["kind"]]
    assert kinds == [
        *(ApiKind.ALLOC, ApiKind.ALLOC, ApiKind.COPY, ApiKind.KERNEL),
        *(ApiKind.FREE, ApiKind.ALLOC),
    ]
    assert trace.objects["size_bytes"].tolist() == [256, 512, 128]
    assert trace.apis["stream"].tolist() == [0, 0, 0, 9, 0, 0]
    assert trace.label(3) == "square" * 20
    assert trace.place(3).frames == ("make_buffers  app+0x123",)
    assert trace.object_place(0).frames == ("make_buffers  app+0x123",)
    accesses = set(
        zip(trace.accesses["object"].tolist(), trace.accesses["flags"].tolist(), strict=True)
    )
    assert accesses == {(0, WRITES), (0, TOUCHES), (1, READS)}
    runs = set(trace.ranges[["offset", "size_bytes", "repeat"]].tolist())
    assert {(128, 64, 1), (0, 16, 8)} <= runs


def test_a_call_that_may_touch_anything(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        *(record(ALLOC, 0x1000 * number, 64) for number in (3, 1, 2)),
        record(FREE, 0x1000),
        record(KERNEL),
        record(ACCESS, flags=TOUCHES),
    )
    assert sorted(trace.accesses["object"].tolist()) == [0, 2]


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


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([record(ALLOC, 16, 8), record(ALLOC, 16, 8)], "allocated twice"),
        ([record(ALLOC, 16, 2**48 + 1)], "an allocation of 281474976710657 bytes"),
        ([record(FREE, 16)], "nothing is at address 0x10"),
        ([record(KERNEL), record(ACCESS, 16, 8, flags=READS)], "where nothing lives"),
        ([record(ALLOC, 16, 8), record(SET), record(ACCESS, 16, 8, flags=9)], "flags 9"),
        ([record(ALLOC, 16, 8), record(SET), record(ACCESS, 16, 0, flags=READS)], "no bytes"),
        ([record(99)], "event 0: this is no driver call"),
        ([record(NAME, name=4)], "names are not in order"),
        ([record(NAME, name=1, size=2**60)], "longer than the file"),
        ([record(ALLOC, 16, 2**60)], "2^48"),
    ],
)
def test_calls_that_contradict_themselves(
    tmp_path: Path, records: list[bytes], reason: str
) -> None:
    with pytest.raises((gmlake.TraceError, ValueError), match=re.escape(reason)) as caught:
        read(tmp_path, *records)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"x" * 200, header(order=0x04030201), header(record=48), b"gmlake calls 1"]
)
def test_another_file(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "calls.1"
    file.write_bytes(data)
    with pytest.raises(gmlake.TraceError, match=r"calls\.1: "):
        read_calls(file)


@given(data=st.binary(max_size=56 * 12), kinds=st.lists(st.integers(0, 9), max_size=12))
def test_any_bytes_give_a_trace_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kinds: list[int]
) -> None:
    rows = bytearray(data)
    for index, kind in enumerate(kinds[: len(rows) // 56]):
        rows[56 * index : 56 * index + 4] = kind.to_bytes(4, sys.byteorder)
    file = tmp_path_factory.mktemp("calls") / "calls.1"
    file.write_bytes(header() + rows)
    with contextlib.suppress(gmlake.TraceError, gmlake.UnsupportedError):
        read_calls(file)


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
    assert watched.code == 5
    (trace,) = watched.traces
    assert [trace.label(api) for api in range(2)] == ["alloc", "cuMemsetD8_v2"]
    assert trace.objects["size_bytes"].tolist() == [512]
    found = gmlake.find_inefficiencies(trace)
    assert "memory leak" in str(found)


def test_a_library_that_is_no_cupti(monkeypatch: pytest.MonkeyPatch, program: list[str]) -> None:
    monkeypatch.setenv("GMLAKE_CUPTI", str(programs.COLLECTOR))
    with pytest.raises(gmlake.UnsupportedError, match="has no cuptiSubscribe"):
        programs.watch_program(program)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMLAKE_CUPTI", "/nowhere/libcupti.so")
    with pytest.raises(gmlake.UnsupportedError, match="GMLAKE_CUPTI names /nowhere"):
        programs.watch_program(["true"])
    monkeypatch.setenv("GMLAKE_CUPTI", str(programs.COLLECTOR))
    with pytest.raises(gmlake.UnsupportedError, match="did not start CUDA"):
        programs.watch_program(["true"])
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        programs.watch_program(["no-such-program"])


def test_cupti_is_found_where_pip_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nvidia/cu13/lib"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert programs.find_cupti({}) == folder / "libcupti.so.13"
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(programs, "_TOOLKITS", ())
    with pytest.raises(gmlake.UnsupportedError, match="pip install nvidia-cuda-cupti"):
        programs.find_cupti({})


def test_numbers_are_those_of_cuptis_header() -> None:
    header_file = next(
        HEADERS.glob("python*/site-packages/nvidia/cu13/include/cupti_driver_cbid.h"), None
    )
    if header_file is None:
        pytest.skip("the headers of CUPTI are not installed")
    known = dict(re.findall(r"CUPTI_DRIVER_TRACE_CBID_(\w+)\s*= (\d+)", header_file.read_text()))
    text = (ROOT / "csrc/diagnosis/collect/calls.c").read_text(encoding="utf-8")
    ours = re.findall(r"^    \{(\d+), CUPTI_API_\w+, .*/\* (\w+) \*/$", text, re.MULTILINE)
    assert len(ours) > 80
    assert [(name, known.get(name)) for number, name in ours] == [
        (name, number) for number, name in ours
    ]
