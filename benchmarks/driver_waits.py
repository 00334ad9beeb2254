"""Which driver calls wait for work that is running on the device; needs a GPU and PyTorch.

python benchmarks/driver_waits.py [--write]

A kernel is started that spins for a while and touches no memory; then each call is made and timed
on the host, on memory that no work uses. A call that takes as long as the kernel waited for it.
It also asks whether a part of a handle can be mapped, which CUDA's reference leaves to the future.
"""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

GRANULE = 2 << 20
SPIN_CYCLES = 600_000_000
ROUNDS = 5

cuda = ctypes.CDLL("libcuda.so.1")
Address = ctypes.c_ulonglong


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


DEVICE = _Location(1, 0)
PINNED = _Properties(1, 0, DEVICE, None, (ctypes.c_ubyte * 8)())
READ_WRITE = _Access(DEVICE, 3)


def must(result: int) -> None:
    """Raise for a driver call that failed."""
    if result:
        msg = f"a driver call answered {result}"
        raise RuntimeError(msg)


def calls() -> dict[str, Callable[[], None]]:
    """Return the calls by name, in an order in which each finds what it needs."""
    address, handle, block = Address(), Address(), Address()
    size, one, none = ctypes.c_size_t(GRANULE), ctypes.c_size_t(1), Address(0)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    event, other = torch.cuda.Event(), torch.cuda.Stream()
    must(cuda.cuMemAddressReserve(ctypes.byref(address), size, size, none, none))

    def create() -> None:
        must(cuda.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(PINNED), none))

    def set_access() -> None:
        must(cuda.cuMemSetAccess(address, size, ctypes.byref(READ_WRITE), one))

    return {
        "create": create,
        "map": lambda: must(cuda.cuMemMap(address, size, ctypes.c_size_t(0), handle, none)),
        "set_access": set_access,
        "unmap": lambda: must(cuda.cuMemUnmap(address, size)),
        "release": lambda: must(cuda.cuMemRelease(handle)),
        "malloc": lambda: must(cuda.cuMemAlloc_v2(ctypes.byref(block), size)),
        "free": lambda: must(cuda.cuMemFree_v2(block)),
        "event_record": lambda: event.record(other),
        "event_query": lambda: event.query() and None,
        "stream_wait": lambda: other.wait_event(event),
        "memory_info": lambda: must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))),
    }


def map_at_an_offset() -> str:
    """Return what cuMemMap of the second half of a handle answers, by name."""
    address, handle, name = Address(), Address(), ctypes.c_char_p()
    whole, half, none = ctypes.c_size_t(2 * GRANULE), ctypes.c_size_t(GRANULE), Address(0)
    must(cuda.cuMemAddressReserve(ctypes.byref(address), whole, half, none, none))
    must(cuda.cuMemCreate(ctypes.byref(handle), whole, ctypes.byref(PINNED), none))
    result = cuda.cuMemMap(address, half, half, handle, none)
    if result == 0:
        must(cuda.cuMemUnmap(address, half))
    must(cuda.cuMemRelease(handle))
    must(cuda.cuMemAddressFree(address, whole))
    must(cuda.cuGetErrorName(result, ctypes.byref(name)))
    return (name.value or b"unknown").decode()


def seconds_of(call: Callable[[], None], *, is_busy: bool) -> float:
    """Return how long a call takes on the host, with the device spinning or idle."""
    torch.cuda.synchronize()
    if is_busy:
        torch.cuda._sleep(SPIN_CYCLES)  # noqa: SLF001 (PyTorch has no public way to spin)
    began = time.perf_counter()
    call()
    seconds = time.perf_counter() - began
    torch.cuda.synchronize()
    return seconds


def measure() -> dict[str, Any]:
    """Return the median time of each call in us, with the device idle and spinning."""
    made = calls()
    times: dict[str, dict[bool, list[float]]] = {name: {False: [], True: []} for name in made}
    for is_busy in (False, True) * ROUNDS:
        for name, call in made.items():
            times[name][is_busy].append(seconds_of(call, is_busy=is_busy))
    spin = [seconds_of(torch.cuda.synchronize, is_busy=True) for _ in range(ROUNDS)]
    spin_us = statistics.median(spin) * 1e6
    rows = {}
    for name, taken in times.items():
        idle_us = statistics.median(taken[False]) * 1e6
        busy_us = statistics.median(taken[True]) * 1e6
        waits = busy_us > spin_us / 2
        rows[name] = {"idle_us": round(idle_us, 1), "busy_us": round(busy_us, 1), "waits": waits}
    return {
        "device": torch.cuda.get_device_name(),
        "spin_us": round(spin_us),
        "calls": rows,
        "map_at_an_offset": map_at_an_offset(),
    }


def main() -> None:
    """Measure, print, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="keep it as results/driver_waits.json")
    arguments = parser.parse_args()
    torch.cuda.init()
    measured = measure()
    print(f"a kernel that spins for {measured['spin_us'] / 1e3:.0f} ms on {measured['device']}")
    for name, row in measured["calls"].items():
        says = "waits" if row["waits"] else "does not wait"
        print(f"{name:13} idle {row['idle_us']:9.1f} us   busy {row['busy_us']:11.1f} us   {says}")
    print(f"a map of the second half of a handle answers {measured['map_at_an_offset']}")
    if arguments.write:
        print(machine.write("driver_waits", measured, gpu=measured["device"]))


if __name__ == "__main__":
    main()
