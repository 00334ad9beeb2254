"""What transports take of gmlake's memory, on several GPUs: registration, pools, other processes.

    PYTHONPATH=benchmarks python -m gpu.transports [--write] [--ranks 2] [--backend nccl]

A process for each GPU. `registered`: what ncclCommRegister answers for a tensor of
gmlake.exportable(), for one side by side in several and for a stitched one, and whether
the sum over all GPUs is right then. `opened`: whether each process reads what every other one
sent by torch.multiprocessing, through its own GPU, of a tensor of gmlake.exportable() and of a
stitched one.

With `--backend gloo` nothing is registered, and the rest runs where NCCL does not.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from rich.console import Console
from torch.multiprocessing.reductions import reduce_tensor

import gmlake
import machine
from gpu.processes import run_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def numbers(rank: int) -> torch.Tensor:
    """Return 64 MiB on the host that no other rank has."""
    return torch.arange(16 * MIB, dtype=torch.int32) + 1000 * rank


def stitched(rank: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the numbers in pieces that lie apart, and what lies between: let none of it go."""
    pieces = [torch.empty(24 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del pieces[::2]
    return numbers(rank).cuda(), pieces


def is_summed(tensor: torch.Tensor, rank: int) -> bool:
    """Sum over all GPUs twice; whether that is right. The tensor holds its numbers afterwards."""
    expected = sum(map(numbers, range(dist.get_world_size())), torch.zeros_like(numbers(0)))
    right = True
    for _ in range(2):
        tensor.copy_(numbers(rank))
        dist.all_reduce(tensor)
        right = right and torch.equal(tensor.cpu(), expected)
    tensor.copy_(numbers(rank))
    return right


def registered(tensor: torch.Tensor, rank: int, backend: Any) -> dict[str, Any]:  # noqa: ANN401
    """Register a tensor with NCCL, sum it, and end the registration."""
    nccl = ctypes.CDLL("libnccl.so.2")  # the one that PyTorch has loaded
    handle = ctypes.c_void_p()
    size = ctypes.c_size_t(tensor.numel() * tensor.element_size())
    communicator = ctypes.c_void_p(backend._comm_ptr())  # noqa: SLF001 (the one way to it)
    place = ctypes.c_void_p(tensor.data_ptr())
    code = nccl.ncclCommRegister(communicator, place, size, ctypes.byref(handle))
    found = {"code": code, "is_summed": is_summed(tensor, rank)}
    torch.cuda.synchronize()
    if code == 0 and handle.value:
        found["ended"] = nccl.ncclCommDeregister(communicator, handle)
    return found


def opened(tensor: torch.Tensor, rank: int) -> bool:
    """Let the other ranks have it, and look at what each sent, through this GPU."""
    torch.cuda.synchronize()
    ranks = dist.get_world_size()
    sent: list[Any] = [None] * ranks
    dist.all_gather_object(sent, [reduce_tensor(tensor) for _ in range(ranks)])
    is_right = True
    for other, to_each in enumerate(sent):
        if other != rank:
            rebuild, arguments = to_each[rank]
            theirs = rebuild(*arguments)
            here = torch.empty(theirs.shape, dtype=theirs.dtype, device="cuda").copy_(theirs)
            is_right = is_right and torch.equal(here.cpu(), numbers(other))
            del theirs, here
    dist.barrier()
    return is_right


def part(work: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Return what a part found, or what it failed with: the others go on."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 (it is told)
        return f"{type(error).__name__}: {error}".splitlines()[0]


def measure(backend_name: str) -> dict[str, Any]:
    """Do all of it as one rank."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    gmlake.enable()
    dist.init_process_group(backend_name)
    dist.all_reduce(torch.ones(1, device="cuda"))  # makes the communicator
    with gmlake.exportable():
        whole = numbers(rank).cuda()
    plain = numbers(rank).cuda()
    wide, between = stitched(rank)
    found: dict[str, Any] = {
        "exportable": [gmlake.is_exportable(each) for each in (whole, plain, wide)],
        "opened": {
            "exportable": part(lambda: opened(whole, rank)),
            "stitched": part(lambda: opened(wide, rank)),
        },
    }
    if backend_name == "nccl":
        group: Any = dist.distributed_c10d._get_default_group()  # noqa: SLF001
        backend = group._get_backend(torch.device("cuda"))  # noqa: SLF001
        found["registered"] = {
            "exportable": part(lambda: registered(whole, rank, backend)),
            "plain": part(lambda: registered(plain, rank, backend)),
            "stitched": part(lambda: registered(wide, rank, backend)),
        }
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    del between
    dist.barrier()
    dist.destroy_process_group()
    return {**found, "device": torch.cuda.get_device_name(), "torch": torch.__version__}


def is_right(told: dict[str, Any]) -> bool:
    """Whether a rank found what it should, but for what NCCL answers for stitched memory."""
    if "failed" in told:
        return False
    sums = told.get("registered", {}).values()
    return (
        told["exportable"] == [True, False, False]
        and told["opened"] == {"exportable": True, "stitched": True}
        and all(isinstance(each, dict) and each["is_summed"] for each in sums)
    )


def main() -> int:
    """Run all ranks, print, and keep it with --write or --output; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=2, help="processes, a GPU each (2)")
    parser.add_argument("--backend", default="nccl", help="of torch.distributed (nccl)")
    parser.add_argument("--write", action="store_true", help="as results/gpu_transports.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.backend)), flush=True)
        return 0
    told = run_ranks(["gpu.transports", "--backend", options.backend, "--one"], options.ranks)
    ranks = {f"rank {number}": each for number, each in enumerate(told)}
    Console(width=120).print(ranks)
    if options.write or options.output:
        gpu = machine.devices_of(ranks.values())
        figures = {"backend": options.backend, "ranks": ranks}
        print(machine.write("gpu_transports", figures, path=options.output, gpu=gpu))
    return int(not all(map(is_right, ranks.values())))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
