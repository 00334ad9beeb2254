"""Breaks rules of CUDA, one after the other; prints as JSON how many misuses each was counted as.

Before each it writes `-- name` to standard error, where the stand-in says what it found.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable

CUDA = ctypes.CDLL(None)
MIB = 1 << 20
SIZE = 2 * MIB


class Location(ctypes.Structure):
    """A CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """A CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """A CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


DEVICE = Location(1, 0)
READ_AND_WRITE = 3


def call(name: str, *arguments: object) -> int:
    """Call a function of CUDA; return its error code."""
    code: int = getattr(CUDA, name)(*arguments)
    return code


def expect(name: str, *arguments: object) -> None:
    """Call a function of CUDA that must succeed."""
    code = call(name, *arguments)
    if code:
        sys.exit(f"{name}: {code}")


def word(value: int) -> ctypes.c_uint64:
    """Return a size, an address, a handle or flags as CUDA takes them."""
    return ctypes.c_uint64(value)


class Mapped:
    """SIZE bytes of virtual memory, mapped; close() gives back what is left of it."""

    def __init__(self, *, is_accessible: bool = True) -> None:
        address, handle = ctypes.c_uint64(), ctypes.c_uint64()
        zero, size = word(0), word(SIZE)
        expect("cuMemAddressReserve", ctypes.byref(address), size, zero, zero, zero)
        properties = Properties(type=1, location=DEVICE)
        expect("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), zero)
        expect("cuMemMap", address, size, zero, handle, zero)
        self.address, self.handle, self.is_mapped = address.value, handle.value, True
        if is_accessible:
            access = Access(DEVICE, READ_AND_WRITE)
            expect("cuMemSetAccess", address, size, ctypes.byref(access), word(1))

    def map_again(self) -> int:
        """Map it where it is mapped."""
        return call("cuMemMap", *map(word, (self.address, SIZE, 0, self.handle, 0)))

    def unmap(self) -> int:
        """Unmap it."""
        self.is_mapped = False
        return call("cuMemUnmap", word(self.address), word(SIZE))

    def close(self) -> None:
        """Give everything back."""
        torch.cuda.synchronize()
        if self.is_mapped:
            expect("cuMemUnmap", word(self.address), word(SIZE))
        expect("cuMemRelease", word(self.handle))
        expect("cuMemAddressFree", word(self.address), word(SIZE))


def malloc(size: int = SIZE) -> int:
    """Return the address of a plain block."""
    address = ctypes.c_uint64()
    expect("cudaMalloc", ctypes.byref(address), word(size))
    return address.value


def free(address: int) -> int:
    """Free a plain block."""
    return call("cudaFree", word(address))


def fill(address: int, size: int = SIZE, stream: int = 0) -> int:
    """Set bytes to 0 when the stream gets there."""
    return call("cudaMemsetAsync", word(address), 0, word(size), word(stream))


class Foreign:
    """Memory that PyTorch is shown as an array of shape [rows, columns] of float32."""

    def __init__(self, address: int, *shape: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }

    def tensor(self) -> torch.Tensor:
        """Return it as a tensor."""
        return torch.as_tensor(self, device="cuda")


def nothing() -> None:
    """Use memory as one may."""
    mapped = Mapped()
    fill(mapped.address)
    x = Foreign(mapped.address, 256, 256).tensor()
    torch.mm(x, x)
    mapped.close()
    address = malloc()
    fill(address)
    free(address)


def copy_to_freed_memory() -> None:
    """Copy from the host to a block that was freed."""
    address = malloc()
    free(address)
    source = ctypes.create_string_buffer(100)
    call("cudaMemcpy", word(address), source, word(100), 1)


def copy_between_tensors_of_which_one_is_freed() -> None:
    """Copy to a tensor whose memory was freed behind PyTorch's back."""
    address = malloc()
    x = Foreign(address, 100).tensor()
    free(address)
    with suppress(RuntimeError):
        x.copy_(torch.ones(100, device="cuda"))


def map_twice() -> None:
    """Map over a mapping."""
    mapped = Mapped()
    mapped.map_again()
    mapped.close()


def unmap_while_a_copy_is_pending() -> None:
    """Unmap what a stream has yet to copy."""
    mapped, stream = Mapped(), torch.cuda.Stream()
    with control.paced("manual"):
        source = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        call(
            "cudaMemcpyAsync",
            *(word(mapped.address), word(source.data_ptr()), word(SIZE), 3),
            word(stream.cuda_stream),
        )
        is_refused = mapped.unmap() != 0
        torch.cuda.synchronize()
    mapped.is_mapped = is_refused
    mapped.close()


def unmap_what_is_not_mapped() -> None:
    """Unmap twice."""
    mapped = Mapped()
    mapped.unmap()
    mapped.unmap()
    mapped.close()


def give_mapped_addresses_back() -> None:
    """Give an address range back that is mapped."""
    mapped = Mapped()
    call("cuMemAddressFree", word(mapped.address), word(SIZE))
    mapped.close()


def product_over_unmapped_memory() -> None:
    """Multiply matrices of which one is unmapped."""
    mapped = Mapped()
    x = Foreign(mapped.address, 256, 256).tensor()
    mapped.unmap()
    with suppress(RuntimeError):
        torch.mm(x, x)
    mapped.close()


def product_over_freed_memory() -> None:
    """Multiply matrices of which one was freed behind PyTorch's back."""
    address = malloc()
    x = Foreign(address, 256, 256).tensor()
    y = torch.ones(256, 256, device="cuda")
    free(address)
    with suppress(RuntimeError):
        torch.mm(y, x)


def convolution_over_unmapped_memory() -> None:
    """Convolve a picture that is unmapped."""
    mapped = Mapped()
    x = Foreign(mapped.address, 1, 4, 64, 64).tensor()
    weight = torch.ones(4, 4, 3, 3, device="cuda")
    mapped.unmap()
    with suppress(RuntimeError):
        torch.nn.functional.conv2d(x, weight)
    mapped.close()


def use_without_access() -> None:
    """Fill memory to which no device was given access."""
    mapped = Mapped(is_accessible=False)
    fill(mapped.address)
    mapped.close()


def free_twice() -> None:
    """Free a block twice."""
    address = malloc()
    free(address)
    free(address)


def replay_without_memory() -> None:
    """Replay a graph whose memory was unmapped since."""
    mapped, graph = Mapped(), torch.cuda.CUDAGraph()
    x = Foreign(mapped.address, 256).tensor()
    y = torch.ones(256, device="cuda")
    with torch.cuda.graph(graph):
        x.copy_(y)
    graph.replay()
    torch.cuda.synchronize()
    mapped.unmap()
    with suppress(RuntimeError):
        graph.replay()
    torch.cuda.synchronize()
    mapped.close()


FAULTS: tuple[Callable[[], None], ...] = (
    copy_to_freed_memory,
    copy_between_tensors_of_which_one_is_freed,
    map_twice,
    unmap_while_a_copy_is_pending,
    unmap_what_is_not_mapped,
    give_mapped_addresses_back,
    product_over_unmapped_memory,
    product_over_freed_memory,
    convolution_over_unmapped_memory,
    use_without_access,
    free_twice,
    replay_without_memory,
)


def count(name: str, plant: Callable[[], None]) -> int:
    """Return how many misuses the stand-in counts meanwhile."""
    sys.stderr.write(f"-- {name}\n")
    before = control.misuses()
    plant()
    with suppress(RuntimeError):
        torch.cuda.synchronize()
    call("cudaGetLastError")  # PyTorch would raise it at some later call
    return control.misuses() - before


def main() -> None:
    """Plant every fault, between two stretches without any."""
    torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
    results = {"nothing": count("nothing", nothing)}
    results |= {plant.__name__: count(plant.__name__, plant) for plant in FAULTS}
    results["nothing_at_the_end"] = count("nothing_at_the_end", nothing)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
