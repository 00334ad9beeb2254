"""One of several processes that train a model together; prints what was seen as JSON.

Arguments: its rank, how many processes there are, and a file through which they meet.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from tests.standin.accounting import reserved_bytes, tensor_bytes
from tests.standin.quiet import wait_for_other_threads
from tests.standin.training import Trainer, memory_calls
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable


def settled(device: int) -> int:
    """Return the allocated bytes, once the threads of gloo have dropped what they sent."""
    torch.cuda.synchronize(device)
    dist.barrier()  # else they may wait for what another process has yet to send
    wait_for_other_threads()
    return torch.cuda.memory_allocated(device)


def watch(device: int, step: Callable[[], None]) -> dict[str, Any]:
    """Run three steps; return what the last one did to memory."""
    step()
    step()
    allocated = [settled(device)]
    torch.cuda.reset_peak_memory_stats(device)
    control.reset_calls()
    step()
    allocated.append(settled(device))
    calls = control.calls()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 (its only name)
    return {
        "kept": torch.cuda.memory_allocated(device),
        "allocated": allocated,
        "peak": torch.cuda.max_memory_allocated(device),
        "steady_calls": memory_calls(calls),
        "copies": calls["cudaMemcpyAsync"],
        "streams": len({s["stream"] for s in torch.cuda.memory_snapshot()}),
    }


def data_parallel(device: int) -> dict[str, Any]:
    """Train a model whose gradients are averaged."""
    trainer: Any = Trainer()
    has_bytes = os.environ["GMLAKE_STANDIN_BACKED"] == "1"
    # Without bytes the processes cannot tell each other how many parameters they have, nor in which
    # order gradients came: neither is to be asked for.
    options: dict[str, Any] = (
        {} if has_bytes else {"init_sync": False, "find_unused_parameters": True}
    )
    trainer.model = DistributedDataParallel(trainer.model, device_ids=[device], **options)
    weights = tensor_bytes(trainer.parameters)
    return watch(device, trainer.step) | {"weights": weights}


def sharded(device: int) -> dict[str, Any]:
    """Train a model whose weights, gradients and states are divided among the processes."""
    trainer: Any = Trainer()
    for block in trainer.model.blocks:
        fully_shard(block)
    fully_shard(trainer.model)
    trainer.parameters = list(trainer.model.parameters())
    trainer.optimizer = torch.optim.AdamW(trainer.parameters)
    weights = tensor_bytes(parameter.to_local() for parameter in trainer.parameters)
    is_sharded = all(isinstance(parameter, DTensor) for parameter in trainer.parameters)
    return watch(device, trainer.step) | {"weights": weights, "is_sharded": is_sharded}


def main() -> None:
    """Do both, one after the other."""
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world
    )
    torch.cuda.set_device(rank)
    results: dict[str, Any] = {"rank": rank, "device": torch.cuda.current_device()}
    results["ddp"] = data_parallel(rank)
    results["ddp"]["reserved_at_end"] = reserved_bytes()
    results["fsdp"] = sharded(rank)
    results["fsdp"]["reserved_at_end"] = reserved_bytes()
    results["other_device"] = torch.cuda.max_memory_allocated(1 - rank)
    dist.barrier()
    dist.destroy_process_group()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
