"""A region is entered on a device that has no memory left; prints what happened as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import json
import sys

import torch
from tests.standin.failures import failure

import gmlake


def fill() -> None:
    """Take what the device has, past every allocator of the process, as another library may."""
    runtime = ctypes.CDLL(None)
    address = ctypes.c_void_p()
    for size in (1 << 28, 1 << 24, 1 << 21, 1 << 16):
        while runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0:
            pass
    runtime.cudaGetLastError()


def enter() -> None:
    """Enter a region, which has nothing to do there."""
    with gmlake.region("full", backup="cpu"):
        pass


def main() -> int:
    """Do it, and print."""
    gmlake.enable()
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    fill()
    print(json.dumps({"free": torch.cuda.mem_get_info()[0], "failure": failure(enter)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
