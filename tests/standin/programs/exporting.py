"""Memory that transports take whole; prints what was seen as JSON.

Runs on a stand-in of two devices whose memory has bytes.
"""

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
from tests.standin.failures import failure
from torch.multiprocessing.reductions import reduce_tensor

import gmlake

Result = dict[str, Any]
MIB = 1 << 20


def tensor(mebibytes: int, device: str = "cuda") -> torch.Tensor:
    """Return a tensor whose values are their places."""
    made = torch.empty(mebibytes * MIB // 4, dtype=torch.int32, device=device)
    return made.copy_(torch.arange(made.numel(), dtype=torch.int32))


def is_whole(made: torch.Tensor) -> bool:
    """Whether a tensor's values are their places."""
    return torch.equal(made.cpu(), torch.arange(made.numel(), dtype=torch.int32))


def scattered() -> list[torch.Tensor]:
    """Return tensors with free memory between them."""
    pieces = [torch.empty(24 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del pieces[::2]
    return pieces


def whole() -> Result:
    """What is stitched outside lies in one piece inside."""
    outer = scattered()
    stitched = tensor(64)
    with gmlake.exportable():
        inner = scattered()
        sizes = [tensor(size) for size in (1, 3, 11, 64)]
        other = tensor(5, "cuda:1")
        small = torch.ones(10, device="cuda")
    outside = torch.ones(3 * MIB, device="cuda")
    kept = all(is_whole(one) for one in sizes)
    exportable = [gmlake.is_exportable(one) for one in (*inner, *sizes, other, small)]
    views = gmlake.is_exportable(sizes[2][100:])
    del outer
    return {
        "stitched": not gmlake.is_exportable(stitched),
        "inside": all(exportable) and views,
        "outside": outside.data_ptr() != 0,
        "kept": kept,
        "elastic": not gmlake.is_exportable(gmlake.elastic((10, 1024), rows=1).whole),
    }


@gmlake.exportable()
def decorated() -> torch.Tensor:
    """Return what was allocated inside."""
    return tensor(30)


def nesting() -> Result:
    """The inner one counts, and names of regions stay theirs."""
    with gmlake.region("weights"):
        first = tensor(2)
        with gmlake.exportable():
            inner = tensor(2)
        again = tensor(2)
    live = {one.name: one.live_bytes for one in gmlake.regions()}
    kept = decorated()
    slept = gmlake.sleep()
    readable = is_whole(inner)
    gmlake.wake()
    del first, again
    return {
        "names": live == {"weights": 4 * MIB},
        "slept": slept.names == ("weights",) and readable,
        "decorated": gmlake.is_exportable(kept),
    }


def between_processes() -> Result:
    """A process without gmlake opens it, reads, and writes; and the memory comes back."""
    with gmlake.exportable():
        sent = [tensor(size) for size in (1, 11, 64)]
    data = base64.b64encode(pickle.dumps([reduce_tensor(one) for one in sent])).decode()
    command = [sys.executable, __file__, "open"]
    done = subprocess.run(command, input=data, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    written = [int(one[0].item()) for one in sent]
    return {
        "read": told == [one.numel() - 1 for one in sent],
        "written": written == [77, 77, 77],
    }


def open_given() -> None:
    """Open what is given, tell the last values, and write the first."""
    torch.cuda.init()
    told = []
    for rebuild, arguments in pickle.loads(base64.b64decode(sys.stdin.read())):
        shared = rebuild(*arguments)
        told.append(int(shared[-1].item()))
        shared[:1].copy_(torch.tensor([77], dtype=torch.int32))
        torch.cuda.synchronize()
        del shared
        gc.collect()
    print(json.dumps(told))


def main() -> int:
    """Print what was seen."""
    if sys.argv[1:] == ["open"]:
        open_given()
        return 0
    early = failure(lambda: gmlake.exportable().__enter__())
    gmlake.enable()
    results: Result = {
        "early": early,
        "host": failure(lambda: gmlake.is_exportable(torch.ones(1))),
        "whole": whole(),
        "nesting": nesting(),
        "processes": between_processes(),
    }
    gc.collect()
    torch.cuda.empty_cache()
    results["left"] = torch.cuda.memory_reserved()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
