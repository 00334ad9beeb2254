"""Asks CUDA what its headers leave open, and prints the answers as JSON.

The same on a GPU and on the stand-in: `python tests/standin/programs/questions.py`. What a GPU said
is in tests/standin/answers_h200.json, and the stand-in has to say the same.
"""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
TO_DEVICE = 1
NO_TIMING = 2
SPIN_CYCLES = 400_000_000

Answer = int | str | list[int] | bool | None
Pointer = ctypes.c_void_p


def _runtime() -> ctypes.CDLL:
    """Return the CUDA runtime that PyTorch has loaded; the stand-in answers for it."""
    here = ctypes.CDLL(None)
    if hasattr(here, "gmlake_standin_calls"):
        return here
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    return ctypes.CDLL(next(word for word in maps if "libcudart.so" in word))


torch.cuda.init()
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
cudart = _runtime()


def stream() -> Pointer:
    """Return a new stream that the default stream does not wait for."""
    made = Pointer()
    assert cudart.cudaStreamCreateWithFlags(ctypes.byref(made), 1) == 0
    return made


def event() -> Pointer:
    """Return a new event."""
    made = Pointer()
    assert cudart.cudaEventCreateWithFlags(ctypes.byref(made), NO_TIMING) == 0
    return made


def malloc(size: int) -> Pointer:
    """Return device memory."""
    made = Pointer()
    assert cudart.cudaMalloc(ctypes.byref(made), ctypes.c_size_t(size)) == 0
    return made


def end(captured: Pointer) -> int:
    """End a capture; return the error and forget the graph."""
    graph = Pointer()
    error = int(cudart.cudaStreamEndCapture(captured, ctypes.byref(graph)))
    if graph.value:
        cudart.cudaGraphDestroy(graph)
    cudart.cudaGetLastError()
    return error


def during(mode: int, call: Callable[[Pointer], int], *, in_thread: bool = False) -> list[int]:
    """Return the error of a call made while a stream captures, and that of ending the capture."""
    captured = stream()
    assert cudart.cudaStreamBeginCapture(captured, mode) == 0
    errors: list[int] = []
    if in_thread:
        thread = threading.Thread(target=lambda: errors.append(int(call(captured))))
        thread.start()
        thread.join()
    else:
        errors.append(int(call(captured)))
    cudart.cudaGetLastError()
    return [*errors, end(captured)]


def call_malloc(_: Pointer) -> int:
    """Ask for memory."""
    made = Pointer()
    error = int(cudart.cudaMalloc(ctypes.byref(made), ctypes.c_size_t(MIB)))
    if made.value:
        cudart.cudaFree(made)
    return error


def call_host_alloc(_: Pointer) -> int:
    """Ask for page-locked memory."""
    made = Pointer()
    return int(cudart.cudaHostAlloc(ctypes.byref(made), ctypes.c_size_t(MIB), 0))


def call_memory_info(_: Pointer) -> int:
    """Ask how much is free."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    return int(cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))


def on_captured(name: str, other: Pointer | None = None) -> Callable[[Pointer], int]:
    """Return a call of that name on the capturing stream, or on another object."""
    return lambda captured: int(getattr(cudart, name)(other or captured))


def recorded_event() -> Pointer:
    """Return an event that was recorded and is complete."""
    made = event()
    on = stream()
    assert cudart.cudaEventRecord(made, on) == 0
    cudart.cudaStreamSynchronize(on)
    return made


def event_of_an_ended_capture() -> list[int]:
    """Query and wait for an event whose capture is over."""
    captured, made, other = stream(), event(), stream()
    cudart.cudaStreamBeginCapture(captured, GLOBAL)
    cudart.cudaEventRecord(made, captured)
    end(captured)
    errors = [int(cudart.cudaEventQuery(made)), int(cudart.cudaStreamWaitEvent(other, made, 0))]
    cudart.cudaGetLastError()
    return errors


def unjoined_capture() -> int:
    """Fork to a second stream and end without joining it."""
    captured, made, other = stream(), event(), stream()
    cudart.cudaStreamBeginCapture(captured, GLOBAL)
    cudart.cudaEventRecord(made, captured)
    cudart.cudaStreamWaitEvent(other, made, 0)
    with torch.cuda.stream(torch.cuda.ExternalStream(other.value or 0)):
        block = malloc_in_relaxed_mode()
        cudart.cudaMemsetAsync(block, 0, ctypes.c_size_t(512), other)
    return end(captured)


def malloc_in_relaxed_mode() -> Pointer:
    """Return device memory while something captures."""
    mode = ctypes.c_int(RELAXED)
    cudart.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    made = malloc(MIB)
    cudart.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    return made


def end_on_the_fork() -> int:
    """End a capture on a stream that joined it."""
    captured, made, other = stream(), event(), stream()
    cudart.cudaStreamBeginCapture(captured, GLOBAL)
    cudart.cudaEventRecord(made, captured)
    cudart.cudaStreamWaitEvent(other, made, 0)
    error = end(other)
    end(captured)
    return error


def capture_of_the_default_stream() -> int:
    """Begin a capture on stream 0."""
    error = int(cudart.cudaStreamBeginCapture(Pointer(0), GLOBAL))
    cudart.cudaGetLastError()
    if error == 0:
        end(Pointer(0))
    return error


def pool_attribute(pool: Pointer, attribute: int) -> int:
    """Return an attribute of a memory pool."""
    value = ctypes.c_uint64()
    assert cudart.cudaMemPoolGetAttribute(pool, attribute, ctypes.byref(value)) == 0
    return value.value


RESERVED, USED = 5, 7


def pool_growth() -> list[int]:
    """Return reserved and used bytes after 1 MiB, after 40 MiB more, and after trimming to 0."""
    pool, on = Pointer(), stream()
    cudart.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
    answers = []
    blocks = []
    for size in (MIB, 40 * MIB):
        made = Pointer()
        assert cudart.cudaMallocAsync(ctypes.byref(made), ctypes.c_size_t(size), on) == 0
        blocks.append(made)
        answers += [pool_attribute(pool, RESERVED), pool_attribute(pool, USED)]
    for block in blocks:
        cudart.cudaFreeAsync(block, on)
    cudart.cudaStreamSynchronize(on)
    cudart.cudaMemPoolTrimTo(pool, ctypes.c_size_t(0))
    return [*answers, pool_attribute(pool, RESERVED), pool_attribute(pool, USED)]


def used_after_free_async() -> bool:
    """Whether used bytes fall at cudaFreeAsync already, with the stream still busy."""
    pool, on, made = Pointer(), stream(), Pointer()
    cudart.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
    assert cudart.cudaMallocAsync(ctypes.byref(made), ctypes.c_size_t(MIB), on) == 0
    with torch.cuda.stream(torch.cuda.ExternalStream(on.value or 0)):
        torch.cuda._sleep(SPIN_CYCLES)  # noqa: SLF001 (no public way to spin)
    before = pool_attribute(pool, USED)
    cudart.cudaFreeAsync(made, on)
    falls = pool_attribute(pool, USED) < before
    cudart.cudaStreamSynchronize(on)
    return falls


def free_async_of_null() -> int:
    """Free nothing, in order."""
    error = int(cudart.cudaFreeAsync(Pointer(0), stream()))
    cudart.cudaGetLastError()
    return error


def free_of_null() -> int:
    """Free nothing."""
    return int(cudart.cudaFree(Pointer(0)))


def double_free() -> int:
    """Free what was freed."""
    block = malloc(MIB)
    cudart.cudaFree(block)
    error = int(cudart.cudaFree(block))
    cudart.cudaGetLastError()
    return error


def free_inside() -> int:
    """Free an address inside a block."""
    block = malloc(MIB)
    error = int(cudart.cudaFree(Pointer((block.value or 0) + 512)))
    cudart.cudaGetLastError()
    cudart.cudaFree(block)
    return error


def malloc_of_nothing() -> list[int]:
    """Ask for 0 bytes."""
    made = Pointer(123)
    error = int(cudart.cudaMalloc(ctypes.byref(made), ctypes.c_size_t(0)))
    return [error, int(made.value is not None)]


def malloc_of_too_much() -> int:
    """Ask for more than there is."""
    made = Pointer()
    error = int(cudart.cudaMalloc(ctypes.byref(made), ctypes.c_size_t(1 << 50)))
    cudart.cudaGetLastError()
    return error


def priority_range() -> list[int]:
    """Return the least and the greatest priority."""
    least, greatest = ctypes.c_int(), ctypes.c_int()
    cudart.cudaDeviceGetStreamPriorityRange(ctypes.byref(least), ctypes.byref(greatest))
    return [least.value, greatest.value]


def event_before_recording() -> list[int]:
    """Query an event that was never recorded, and measure time between two such."""
    one, other, milliseconds = event(), event(), ctypes.c_float()
    query = int(cudart.cudaEventQuery(one))
    elapsed = int(cudart.cudaEventElapsedTime(ctypes.byref(milliseconds), one, other))
    cudart.cudaGetLastError()
    return [query, elapsed]


def host_pointer_kinds() -> list[int]:
    """Return the memory type of ordinary, page-locked and device memory."""
    ordinary = (ctypes.c_char * 64)()
    locked = Pointer()
    cudart.cudaHostAlloc(ctypes.byref(locked), ctypes.c_size_t(64), 0)
    kinds = []
    for address in (ctypes.addressof(ordinary), locked.value, malloc(64).value):
        attributes = (ctypes.c_int * 32)()
        assert cudart.cudaPointerGetAttributes(attributes, Pointer(address)) == 0
        kinds.append(attributes[0])
    return kinds


def wrong_direction() -> int:
    """Copy device to device, and call it host to device."""
    error = int(cudart.cudaMemcpy(malloc(512), malloc(512), ctypes.c_size_t(512), TO_DEVICE))
    cudart.cudaGetLastError()
    return error


QUESTIONS: dict[str, Callable[[], Answer]] = {
    "malloc in a global capture": lambda: during(GLOBAL, call_malloc),
    "malloc in a thread-local capture": lambda: during(THREAD_LOCAL, call_malloc),
    "malloc in a relaxed capture": lambda: during(RELAXED, call_malloc),
    "malloc on another thread, global": lambda: during(GLOBAL, call_malloc, in_thread=True),
    "malloc on another thread, local": lambda: during(THREAD_LOCAL, call_malloc, in_thread=True),
    "host_alloc in a global capture": lambda: during(GLOBAL, call_host_alloc),
    "memory_info in a global capture": lambda: during(GLOBAL, call_memory_info),
    "device_synchronize in a global capture": lambda: during(
        GLOBAL, lambda _: int(cudart.cudaDeviceSynchronize())
    ),
    "synchronize the capturing stream": lambda: during(
        RELAXED, on_captured("cudaStreamSynchronize")
    ),
    "query the capturing stream": lambda: during(RELAXED, on_captured("cudaStreamQuery")),
    "synchronize another stream, global": lambda: during(
        GLOBAL, on_captured("cudaStreamSynchronize", stream())
    ),
    "query another stream, global": lambda: during(
        GLOBAL, on_captured("cudaStreamQuery", stream())
    ),
    "query a complete event, global": lambda: during(
        GLOBAL, on_captured("cudaEventQuery", recorded_event())
    ),
    "query a complete event, relaxed": lambda: during(
        RELAXED, on_captured("cudaEventQuery", recorded_event())
    ),
    "synchronize a complete event, global": lambda: during(
        GLOBAL, on_captured("cudaEventSynchronize", recorded_event())
    ),
    "event of an ended capture": event_of_an_ended_capture,
    "capture that was not joined": unjoined_capture,
    "capture ended on the fork": end_on_the_fork,
    "capture of the default stream": capture_of_the_default_stream,
    "pool growth": pool_growth,
    "used bytes fall at free_async": used_after_free_async,
    "free_async of null": free_async_of_null,
    "free of null": free_of_null,
    "double free": double_free,
    "free inside a block": free_inside,
    "malloc of nothing": malloc_of_nothing,
    "malloc of too much": malloc_of_too_much,
    "priorities": priority_range,
    "event before recording": event_before_recording,
    "kinds of pointers": host_pointer_kinds,
    "copy called the wrong direction": wrong_direction,
}


def main() -> None:
    """Ask everything and print the answers."""
    answers: dict[str, Answer] = {name: ask() for name, ask in QUESTIONS.items()}
    answers["device"] = torch.cuda.get_device_name()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
