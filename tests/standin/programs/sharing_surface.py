"""Streams of other libraries, and tensors that several streams use; prints what was seen as JSON.

The argument names one of the functions below.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import gc
import json
import sys
from typing import Any

import torch
import torch.utils.dlpack

import gmlake
from gmlake.pytorch import Session
from gmlake.standin import control

MIB = 1 << 20
SIZE = 200 * MIB  # more than half of what the device has
Seen = dict[str, Any]


def block(size: int = SIZE) -> torch.Tensor:
    """Return a tensor of so many bytes."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def create() -> int:
    """Create a stream as another library would; return its handle."""
    handle = ctypes.c_void_p()
    assert ctypes.CDLL(None).cudaStreamCreate(ctypes.byref(handle)) == 0
    assert handle.value
    return handle.value


def destroy(handle: int) -> None:
    """Destroy it, which lets its work run to its end."""
    assert ctypes.CDLL(None).cudaStreamDestroy(ctypes.c_void_p(handle)) == 0


def use(stream: torch.cuda.Stream, size: int = SIZE) -> None:
    """Leave memory that was used on the stream."""
    with torch.cuda.stream(stream):
        block(size).zero_()


def calls(session: Session, name: str) -> int:
    """Return how often gmlake made a driver call."""
    stats = session.stats()
    return int(stats["driver_calls"][name]) if stats else 0


def own() -> Seen:
    """Wrap PyTorch's own current stream, as torch.from_dlpack() does."""
    with gmlake.enabled() as session:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.utils.dlpack.from_dlpack(block(4 * MIB))
            torch.cuda.ExternalStream(side.cuda_stream)
        gc.collect()
        use(side)
        waits = calls(session, "device_synchronize")
        held = block()
        return {
            "device_waits": calls(session, "device_synchronize") - waits,
            "borrowed": session.stats()["borrowed_bytes"] >= held.nbytes,
            "pairs": [
                pair["owner"] == side.cuda_stream and pair["borrower"] == 0
                for pair in gmlake.stream_pairs()
                if pair["borrowed_bytes"]
            ],
            "nowhere": gmlake.stream_pairs(1),
        }


def recorded() -> Seen:
    """Let many streams use one tensor, and let them end one after the other."""
    with gmlake.enabled() as session:
        sides = [torch.cuda.Stream() for _ in range(4)]
        foreign = create()
        with control.paced("manual"):
            lent = block(8 * MIB)
            sides.append(torch.cuda.ExternalStream(foreign))
            for side in sides:
                with torch.cuda.stream(side):
                    lent.add_(1)
                lent.record_stream(side)
                lent.record_stream(side)
            lent.record_stream(torch.cuda.current_stream())
            torch.empty(0, device="cuda").record_stream(sides[0])
            del lent
            stats = torch.cuda.memory_stats()
            pairs = {pair["borrower"]: pair for pair in gmlake.stream_pairs()}
            deferred = []
            for side in sides:
                deferred.append(session.stats()["deferred_free_bytes"])
                control.advance(side.cuda_stream, control.pending(side.cuda_stream))
                if side.cuda_stream == foreign:
                    destroy(foreign)  # whose event is recorded already
                block(512)
            return {
                "allocated": stats["allocated_bytes.all.current"],
                "active": stats["active_bytes.all.current"],
                "counts": [stats["allocation.all.current"], stats["active.all.current"]],
                "borrowers": sorted(pairs) == sorted(side.cuda_stream for side in sides),
                "bytes": sorted({pair["deferred_free_bytes"] for pair in pairs.values()}),
                "deferred": [*deferred, session.stats()["deferred_free_bytes"]],
            }


def at_exit() -> Seen:
    """End while tensors wait for streams, two of which are destroyed."""
    session = gmlake.enable()
    control.set_pace("manual")
    handles = create(), create()
    streams = [torch.cuda.Stream(), *map(torch.cuda.ExternalStream, handles)]
    lent = block(8 * MIB)
    kept.append(lent.clone())
    kept[0].record_stream(streams[0])
    for side in streams:
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
    del lent
    deferred = session.stats()["deferred_free_bytes"]
    for handle in handles:
        control.advance(handle, control.pending(handle))
        destroy(handle)
    return {"deferred": deferred}


kept: list[torch.Tensor] = []  # until the end of the process


def main() -> None:
    """Run one function."""
    seen = globals()[sys.argv[1]]()
    print(json.dumps(seen | {"misuses": control.misuses()}))


if __name__ == "__main__":
    main()
