"""A device that is full, with memory of the host beside; prints what was seen as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import json
import sys
import warnings
from typing import Any

import torch
from tests.standin.refusal import refused

import gmlake

MIB = 1 << 20


def fresh(count: int) -> torch.Tensor:
    return torch.empty(count * MIB, dtype=torch.uint8, device="cuda")


def beside_others() -> None:
    """Leave 100 MiB of the device, which others fill, and ask for 112."""
    session = gmlake.enable(host="64MiB")
    held = fresh(64)
    ballast, free_bytes = ctypes.c_ulonglong(), torch.cuda.mem_get_info()[0]
    size = ctypes.c_size_t(free_bytes - 36 * MIB)
    assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(ballast), size) == 0
    more = fresh(48)
    host_bytes = session.stats()["host_bytes"]
    print(json.dumps({"host_mib": host_bytes >> 20, "bytes": held.numel() + more.numel()}))


def main() -> None:
    session = gmlake.enable(capacity="256MiB", host="64MiB")
    seen: dict[str, Any] = {}
    held = [fresh(32) for _ in range(7)]

    def host_mib() -> int:
        return int(session.stats()["host_bytes"]) >> 20

    def creates() -> int:
        return int(session.stats()["driver_calls"]["create"])

    part = fresh(40)
    seen["part"] = host_mib()
    del part
    created = creates()
    part = fresh(40)
    seen["part_again"] = creates() == created
    del part
    part = fresh(42)
    seen["more_creates"] = creates() - created
    del part
    torch.cuda.empty_cache()
    held.append(fresh(32))
    seen["before"] = host_mib()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            more = fresh(40)
            seen["during"] = host_mib()
            more.fill_(7)
            del more
    seen["warnings"] = [[str(each.message), each.filename] for each in caught]
    created = creates()
    again = fresh(40)
    seen["no_new"] = creates() == created
    seen["too_much"] = refused(fresh, 40)
    del held[:4], again
    torch.cuda.empty_cache()
    seen["after"] = host_mib()
    seen["most"] = session.stats()["highest_host_bytes"] >> 20
    large = fresh(100)
    seen["serves"], seen["at_last"] = large.numel(), host_mib()
    held += [fresh(28)]
    seen["full"] = refused(fresh, 80)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        seen["in_a_graph"] = refused(fresh, 4)
        graph.capture_end()
    with gmlake.region("asleep"):
        seen["in_a_region"] = refused(fresh, 4)
    print(json.dumps(seen))


if __name__ == "__main__":
    beside_others() if "others" in sys.argv else main()
