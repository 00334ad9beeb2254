"""Tensors that two processes share: on a stand-in whose memory has bytes, or on a GPU."""

# mypy: allow-untyped-calls

from __future__ import annotations

import base64
import ctypes
import errno
import gc
import json
import os
import pickle
import resource
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

import gmlake

MIB = 1 << 20
WRITTEN = 77
FILES = 256  # that a process may have open
FETCH = 8  # the kind of a letter
TEXT = 7  # of what reduce_tensor() returns: where another process finds the memory


def tensor(mebibytes: int) -> torch.Tensor:
    """Return a tensor whose values are their places, by a copy: kernels do nothing here."""
    made = torch.empty(mebibytes * MIB // 4, dtype=torch.int32, device="cuda")
    return made.copy_(torch.arange(made.numel(), dtype=torch.int32))


def stitched() -> torch.Tensor:
    """Return a tensor in pieces that lie apart: the more is held, the larger are new chunks."""
    pieces = [torch.empty(24 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del pieces[::2]
    wide = tensor(64)
    wide.between = pieces  # type: ignore[attr-defined]
    return wide


def opened_by(who: str, shared: list[Any]) -> Any:
    """Let another process open what is shared, `with` or `without` gmlake, and write into it."""
    data = base64.b64encode(pickle.dumps(shared)).decode()
    command = [sys.executable, __file__, "open", who]
    done = subprocess.run(command, input=data, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def open_given() -> None:
    """Open what is given, tell the last values, and write the first."""
    if sys.argv[2] == "with":
        gmlake.enable()
    torch.cuda.init()
    told: list[Any] = []
    allocated = set[int]()
    for rebuild, arguments in pickle.loads(base64.b64decode(sys.stdin.read())):
        try:
            shared = rebuild(*arguments)
        except RuntimeError as error:
            told.append(str(error).splitlines()[0])
            continue
        told.append(shared[-2:].tolist())
        shared[:1].copy_(torch.tensor([WRITTEN], dtype=shared.dtype))
        torch.cuda.synchronize()
        allocated.add(torch.cuda.memory_allocated())
        del shared
    gc.collect()
    print(
        json.dumps(
            {"told": told, "allocated": list(allocated), "reserved": torch.cuda.memory_reserved()}
        )
    )


def share() -> dict[str, Any]:
    """Share tensors of all kinds with processes of both kinds."""
    with gmlake.enabled(optimize_for="time") as session:
        wide = stitched()
        seen: dict[str, Any] = {"stitch": session.stats()["states"]["stitch"]}
        shared = [wide, tensor(101), tensor(1)[:1000], wide[1000:]]
        for who in ("with", "without"):
            for each in shared:
                each[:1].copy_(torch.tensor([0], dtype=torch.int32))
            reduced = [reduce_tensor(each) for each in shared]
            seen[who] = opened_by(who, reduced)
            seen[f"{who}_back"] = [int(each[0]) for each in shared]
        texts = [arguments[TEXT] for _, arguments in reduced]
        seen["are_own"] = [text.startswith(b"gmlake:2") for text in texts]
        seen["is_same"] = texts[0] == texts[3]
        del wide, shared, each, reduced
        gc.collect()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        seen["left"] = torch.cuda.memory_allocated()
    return seen


def consume(given: Any, answers: Any) -> None:
    """Write into each tensor that comes, and answer what was in it."""
    gmlake.enable()
    while (shared := given.get()) is not None:
        answers.put(int(shared[-1]))
        shared[:1].copy_(torch.tensor([WRITTEN], dtype=torch.int32))
        torch.cuda.synchronize()
        del shared
        answers.put("done")


def queue() -> dict[str, Any]:
    """Send tensors through queues, as torch.multiprocessing does it."""
    context = torch.multiprocessing.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    seen: dict[str, Any] = {"last": [], "first": []}
    with gmlake.enabled():
        process = context.Process(target=consume, args=(given, answers))
        process.start()
        for size in (3, 101, 20, 101):
            shared = tensor(size)
            given.put(shared)
            seen["last"].append(answers.get(timeout=600) + 1 == shared.numel())
            answers.get(timeout=600)
            seen["first"].append(int(shared[0]))
            del shared
        given.put(None)
        process.join(600)
        seen["exit"] = process.exitcode
        gc.collect()
        torch.cuda.ipc_collect()
        seen["allocated"] = torch.cuda.memory_allocated()
    return seen


def refuse_to_look() -> None:
    """Let the kernel refuse pidfd_getfd(), as it does in containers."""

    class Filter(ctypes.Structure):
        _fields_ = (
            ("code", ctypes.c_uint16),
            ("if_true", ctypes.c_uint8),
            ("if_false", ctypes.c_uint8),
            ("value", ctypes.c_uint32),
        )

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint16), ("filters", ctypes.POINTER(Filter)))

    rows = ((0x20, 0, 0, 0), (0x15, 0, 1, 438), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000))
    filters = (Filter * len(rows))(*(Filter(*row) for row in rows))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Program(len(rows), filters)), 0, 0) == 0
    assert libc.syscall(438, 0, 0, 0) == -1
    assert ctypes.get_errno() == errno.EPERM


def consume_contained(given: Any, answers: Any) -> None:
    """Do as consume() where the kernel refuses to look into another process."""
    refuse_to_look()
    consume(given, answers)


def contained() -> dict[str, Any]:
    """Send tensors of each kind to such a process."""
    context = torch.multiprocessing.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    seen: dict[str, Any] = {"last": [], "first": []}
    with gmlake.enabled(optimize_for="time"):
        process = context.Process(target=consume_contained, args=(given, answers))
        process.start()
        with gmlake.exportable():
            exportable = tensor(6)
        for shared in (tensor(3), stitched(), exportable):
            given.put(shared)
            seen["last"].append(answers.get(timeout=600) + 1 == shared.numel())
            answers.get(timeout=600)
            seen["first"].append(int(shared[0]))
        given.put(None)
        process.join(600)
        seen["exit"] = process.exitcode
    return seen


def files() -> int:
    """Count the files that are open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def keep(given: Any, answers: Any) -> None:
    """Keep each tensor that comes; answer with its size, and at the end with the files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    gmlake.enable()
    kept = []
    while (shared := given.get()) is not None:
        kept.append(shared)
        answers.put(shared.nbytes)
    answers.put(files())
    given.get()


def many() -> dict[str, Any]:
    """Send more chunks than either process may have files; memory with bytes would take some."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    context = torch.multiprocessing.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    seen: dict[str, Any] = {"bytes": []}
    with gmlake.enabled():
        process = context.Process(target=keep, args=(given, answers))
        process.start()
        sent = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda") for _ in range(30)]
        seen["before"] = files()
        for shared in sent:
            given.put(shared)
            seen["bytes"].append(answers.get(timeout=600))
        given.put(None)
        seen["receiver"] = answers.get(timeout=600)
        seen["sender"] = files()
        given.put(None)
        process.join(600)
        del sent, shared
        gc.collect()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        seen["left"] = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), files()]
    return seen


def sockets() -> set[str]:
    """Name the sockets that are open."""
    links = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.add(str(file.readlink()))
    return {link for link in links if link.startswith("socket:")}


def answer_to(text: bytes, user: int) -> bytes:
    """Ask for the files of a text as a child of this user; return what it is told."""
    ours, theirs = os.pipe()
    group, address, mark = struct.unpack("<3Q", text[8:32])
    name = f"\0gmlake.3/{os.getuid()}/{group:016x}/0"
    if not os.fork():
        os.setuid(user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(name)
            with suppress(OSError):
                peer.send(struct.pack("<6I5Q", FETCH, *[0] * 8, address, mark))
                os.write(theirs, peer.recv(8) or b"nothing")
        os._exit(0)
    os.close(theirs)
    os.wait()
    return os.read(ours, 100)


def courier() -> dict[str, Any]:
    """Look at who answers: to whom, and in which process."""
    with gmlake.enabled(optimize_for="time"):
        before = sockets()
        text = reduce_tensor(stitched())[1][TEXT]
        made = sockets() - before
        child = os.fork()
        if not child:
            os._exit(len(made & sockets()))
        told = {"in_child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "made": len(made)}
        told["own"] = len(answer_to(text, os.getuid()))
        if os.getuid() == 0:
            told["stranger"] = len(answer_to(text, 65534).removeprefix(b"nothing"))
    return told


def ended() -> dict[str, Any]:
    """Open what a process shared that has ended, and what was no handle."""
    with gmlake.enabled(optimize_for="time"):
        rebuild, arguments = reduce_tensor(stitched())
        text = arguments[TEXT]
        others = {
            "gone": text[:8] + bytes(8) + text[16:],
            "freed": text[:16] + bytes(8) + text[24:],
            "another": text[:24] + bytes(8) + text[32:],
            "short": text[:-1],
            "long": text + b"x",
        }
        shared = [
            (rebuild, (*arguments[:TEXT], other, *arguments[TEXT + 1 :]))
            for other in others.values()
        ]
        return dict(zip(others, opened_by("with", shared)["told"], strict=True))


if __name__ == "__main__":
    if sys.argv[1] == "open":
        open_given()
    else:
        print(json.dumps(globals()[sys.argv[1]]()))
