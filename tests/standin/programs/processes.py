"""Tensors that two processes share: on a stand-in whose memory has bytes, or on a GPU."""

# mypy: allow-untyped-calls

from __future__ import annotations

import base64
import gc
import json
import pickle
import subprocess
import sys
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

import gmlake

MIB = 1 << 20
WRITTEN = 77
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
    with gmlake.enabled(economy="time") as region:
        wide = stitched()
        seen: dict[str, Any] = {"stitch": region.stats()["states"]["stitch"]}
        shared = [wide, tensor(101), tensor(1)[:1000], wide[1000:]]
        for who in ("with", "without"):
            for each in shared:
                each[:1].copy_(torch.tensor([0], dtype=torch.int32))
            reduced = [reduce_tensor(each) for each in shared]
            seen[who] = opened_by(who, reduced)
            seen[f"{who}_back"] = [int(each[0]) for each in shared]
        texts = [arguments[TEXT] for _, arguments in reduced]
        seen["are_own"] = [text.startswith(b"gmlake:1") for text in texts]
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


def ended() -> dict[str, Any]:
    """Open what a process shared that has ended, and what was no handle."""
    with gmlake.enabled(economy="time"):
        rebuild, arguments = reduce_tensor(stitched())
        text = arguments[TEXT]
        others = {
            "gone": text[:9] + (1 << 22).to_bytes(4, "little") + text[13:],
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
