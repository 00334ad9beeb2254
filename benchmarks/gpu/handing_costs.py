"""Where the time goes when memory passes from one process to another, by calls of the driver alone.

    PYTHONPATH=benchmarks python -m gpu.handing_costs [--handed 20GiB] [--write]

Two processes have a context each, and a third one holds all but the memory that is handed over. One
has it, the other one takes it, in each way and with chunks of each size, --rounds times:

released   chunks are unmapped and released, and the other process creates as many
passed     chunks are exported as files and imported by the other process, which maps them; the
           first one then unmaps and releases its own. The driver never has the memory back
malloc     cuMemFree and cuMemAlloc, as PyTorch's caching allocator does

Times are in ms for each step, medians of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

import machine
from gmlake.units import parse_size
from gpu.ballast import ballast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
WAYS = ("released", "passed", "malloc")
_PINNED, _DEVICE, _FILE, _READ_WRITE = 1, 1, 1, 3
_AT_ONCE: Final = 128  # files in a message


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Allocation(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma_capable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Memory:
    """Chunks of one size in this process, side by side."""

    def __init__(self, handed_bytes: int) -> None:
        """Make a context on the first device, and reserve addresses."""
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self.location = _Location(_DEVICE, 0)
        self.properties = _Allocation(_PINNED, _FILE, self.location)
        self.handed_bytes = handed_bytes
        self.handles: list[int] = []
        self.blocks: list[int] = []
        self.times: dict[str, float] = {}
        device = ctypes.c_int()
        self.ask("cuInit", 0)
        self.ask("cuDeviceGet", ctypes.byref(device), 0)
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.ask("cuCtxSetCurrent", self.context)
        self.base = self.found("cuMemAddressReserve", handed_bytes, 0, 0, 0)

    def ask(self, name: str, *values: Any) -> None:  # noqa: ANN401 (what C takes)
        """Call a function of the driver; end the program where it fails."""
        sized = (ctypes.c_size_t(each) if isinstance(each, int) else each for each in values)
        if error := getattr(self.cuda, name)(*sized):
            sys.exit(f"{name}: error {error}")

    def found(self, name: str, *values: Any) -> int:  # noqa: ANN401 (what C takes)
        """Call a function that gives a number."""
        out = ctypes.c_uint64()
        self.ask(name, ctypes.byref(out), *values)
        return out.value

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time of a step, in ms."""
        began = time.perf_counter()
        yield
        self.times[name] = self.times.get(name, 0) + (time.perf_counter() - began) * 1e3

    def create(self, chunk_bytes: int) -> None:
        """Take memory from the driver."""
        with self.step("create"):
            self.handles = [
                self.found("cuMemCreate", chunk_bytes, ctypes.byref(self.properties), 0)
                for _ in range(self.handed_bytes // chunk_bytes)
            ]
        self.map(chunk_bytes)

    def map(self, chunk_bytes: int) -> None:
        """Map the chunks, and open them."""
        with self.step("map"):
            for number, handle in enumerate(self.handles):
                self.ask("cuMemMap", self.base + number * chunk_bytes, chunk_bytes, 0, handle, 0)
        access = _Access(self.location, _READ_WRITE)
        with self.step("set_access"):
            self.ask("cuMemSetAccess", self.base, self.handed_bytes, ctypes.byref(access), 1)

    def release(self) -> None:
        """Give them up."""
        with self.step("unmap"):
            self.ask("cuMemUnmap", self.base, self.handed_bytes)
        with self.step("release"):
            for handle in self.handles:
                self.ask("cuMemRelease", handle)
        self.handles = []

    def send(self, wire: socket.socket) -> None:
        """Export every chunk, and send the files."""
        for begin in range(0, len(self.handles), _AT_ONCE):
            with self.step("export"):
                files = [
                    self.found("cuMemExportToShareableHandle", handle, ctypes.c_int(_FILE), 0)
                    & 0xFFFFFFFF
                    for handle in self.handles[begin : begin + _AT_ONCE]
                ]
            with self.step("send"):
                socket.send_fds(wire, [b"."], files)
                for file in files:
                    os.close(file)

    def receive(self, wire: socket.socket, count: int) -> None:
        """Import as many chunks."""
        self.handles = []
        while len(self.handles) < count:
            with self.step("receive"):
                _, files, _, _ = socket.recv_fds(wire, 1, _AT_ONCE)
            with self.step("import"):
                for file in files:
                    name = ctypes.c_void_p(file)
                    self.handles.append(
                        self.found("cuMemImportFromShareableHandle", name, ctypes.c_int(_FILE))
                    )
                    os.close(file)

    def malloc(self, chunk_bytes: int) -> None:
        """Take blocks from the driver."""
        with self.step("malloc"):
            self.blocks = [
                self.found("cuMemAlloc_v2", chunk_bytes)
                for _ in range(self.handed_bytes // chunk_bytes)
            ]

    def free(self) -> None:
        """Give the blocks up."""
        with self.step("free"):
            for block in self.blocks:
                self.ask("cuMemFree_v2", block)
        self.blocks = []

    def write(self) -> None:
        """Make the memory dirty, as a program does; the stand-in has no such call."""
        if not hasattr(self.cuda, "cuMemsetD8_v2"):
            return
        for address in self.blocks or [self.base]:
            size = self.handed_bytes // (len(self.blocks) or 1)
            self.ask("cuMemsetD8_v2", address, ctypes.c_ubyte(5), size)
        self.ask("cuCtxSynchronize")


def obey(memory: Memory, pipe: Any, wire: socket.socket) -> None:  # noqa: ANN401 (a connection)
    """Do what is told; answer with the times of the steps since."""
    deeds: dict[str, Callable[[int], None]] = {
        "create": memory.create,
        "map": memory.map,
        "release": lambda _: memory.release(),
        "send": lambda _: memory.send(wire),
        "receive": lambda count: memory.receive(wire, count),
        "malloc": memory.malloc,
        "free": lambda _: memory.free(),
        "write": lambda _: memory.write(),
    }
    pipe.send({})
    while (told := pipe.recv()) is not None:
        name, value = told
        memory.times = {}
        deeds[name](value)
        pipe.send(memory.times)


def live(handed_bytes: int, pipe: Any, wire: socket.socket) -> None:  # noqa: ANN401
    """Be one of the two."""
    obey(Memory(handed_bytes), pipe, wire)


def hand_over(tell: list[Callable[..., dict[str, float]]], way: str, chunk: int, count: int) -> Any:  # noqa: ANN401
    """Hand the memory over once; return the times of the steps."""
    one, other = tell
    one("malloc" if way == "malloc" else "create", chunk)
    one("write")
    if way == "malloc":
        times = {**one("free"), **other("malloc", chunk)}
        other("free")
        return times
    if way == "released":
        times = {**one("release"), **other("create", chunk)}
    else:
        times = {**one("send"), **other("receive", count), **other("map", chunk), **one("release")}
    other("write")
    other("release")
    return times


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Hand over in each way."""
    handed_bytes = parse_size(options.handed)
    spawning = multiprocessing.get_context("spawn")
    wires = socket.socketpair()
    pipes = [spawning.Pipe() for _ in wires]
    processes = [
        spawning.Process(target=live, args=(handed_bytes, pipe[1], wire), daemon=True)
        for pipe, wire in zip(pipes, wires, strict=True)
    ]

    def teller(pipe: Any) -> Callable[..., dict[str, float]]:  # noqa: ANN401 (a connection)
        def tell(name: str, value: int = 0) -> dict[str, float]:
            pipe.send((name, value))
            told: dict[str, float] = pipe.recv()
            return told

        return tell

    for process, pipe in zip(processes, pipes, strict=True):
        process.start()
        pipe[1].close()  # so that its end is seen
        pipe[0].recv()
    tell = [teller(pipe[0]) for pipe in pipes]
    found = []
    with ballast(handed_bytes + parse_size(options.left)):
        for way in options.ways:
            for size in options.chunks:
                chunk = parse_size(size)
                rounds = [
                    hand_over(tell, way, chunk, handed_bytes // chunk)
                    for _ in range(options.rounds)
                ]
                steps = {
                    name: round(statistics.median(each[name] for each in rounds), 3)
                    for name in rounds[0]
                }
                found.append({"way": way, "chunk_bytes": chunk, "steps_ms": steps})
                print(json.dumps(found[-1]), flush=True)
    for pipe, process in zip(pipes, processes, strict=True):
        pipe[0].send(None)
        process.join()
    return {"handed_bytes": handed_bytes, "ways": found}


def device_name() -> str:
    """Return the name of the first device."""
    cuda = ctypes.CDLL("libcuda.so.1")
    text = ctypes.create_string_buffer(96)
    cuda.cuInit(0)
    cuda.cuDeviceGetName(text, 96, 0)
    return text.value.decode()


def main() -> int:
    """Measure, print, and keep it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--handed", default="20GiB")
    parser.add_argument("--left", default="1GiB", help="that is free besides (1GiB)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--chunks", nargs="+", default=["2MiB", "32MiB", "128MiB", "512MiB"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep it as a result")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    options = parser.parse_args()
    figures = measure(options)
    table = Table("way", "chunk", "ms", "steps", title=f"{options.handed} handed over")
    for each in figures["ways"]:
        steps = ", ".join(f"{name} {ms:.1f}" for name, ms in each["steps_ms"].items())
        total = sum(each["steps_ms"].values())
        table.add_row(each["way"], f"{each['chunk_bytes'] // MIB} MiB", f"{total:.1f}", steps)
    Console(width=140).print(table)
    if options.write or options.output:
        path = options.output
        print(machine.write("gpu_handing_costs", figures, path=path, gpu=device_name()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
