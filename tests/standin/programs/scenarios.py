"""Programs that run out of memory, each for another reason, and leave PyTorch's snapshot of it."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import gc
import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
GIB = 1 << 30


def tensor(mebibytes: int) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def fragmented() -> None:
    """Free what lies between blocks that stay, and ask for all of it at once."""
    loaded = [tensor(40) for _ in range(24)]
    torch.cuda.empty_cache()
    whole = [tensor(160) for _ in range(6)]
    del whole
    kept = []
    for _ in range(6):
        buffer = tensor(120)
        kept.append(tensor(40))
        loaded.append(buffer)
    del loaded[24:], buffer
    tensor(600)


def at_a_peak() -> None:
    """Need more than there is: activations of one large batch."""
    model = nn.Sequential(*[nn.Linear(4096, 4096, device="cuda") for _ in range(4)])
    batch = torch.empty(24576, 4096, device="cuda")
    outputs = [batch]
    for layer in model:
        outputs.append(layer(outputs[-1]))


def by_another() -> None:
    """Have little, while somebody else has most of the device."""
    taken = ctypes.c_void_p()
    weights = tensor(200)
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuMemAlloc_v2(ctypes.byref(taken), ctypes.c_size_t(1500 * MIB)) == 0
    try:
        tensor(400)
    finally:
        driver.cuMemFree_v2(taken)
    del weights


def by_a_leak() -> None:
    """Keep the output of each step."""
    model = nn.Linear(1024, 1024, device="cuda")
    outputs = []
    while True:
        outputs.append(model(torch.empty(25600, 1024, device="cuda")))


def in_evaluation() -> None:
    """Evaluate without no_grad(): each layer keeps what its backward pass would need."""
    layers = nn.ModuleList(nn.Linear(2048, 2048, device="cuda") for _ in range(40))
    hidden = torch.empty(8192, 2048, device="cuda")
    for layer in layers:
        hidden = torch.relu(layer(hidden))


def by_a_limit() -> None:
    """Ask for more than the program lets itself have."""
    torch.cuda.set_per_process_memory_fraction(0.25)
    kept = [tensor(100) for _ in range(4)]
    tensor(300)
    del kept


def of_another_stream() -> None:
    """Ask on one stream for what lies idle on another."""
    side = torch.cuda.Stream()
    kept = [tensor(600)]
    with torch.cuda.stream(side):
        wide = tensor(900)
        part = wide[:1].clone()
        del wide
        kept += [part, tensor(20)]
    kept.append(tensor(500))
    tensor(700)


def by_optimizer_state() -> None:
    """Take the first step of AdamW, which makes two tensors for each parameter."""
    model = nn.Sequential(*[nn.Linear(4096, 4096, device="cuda") for _ in range(9)])
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    torch.optim.AdamW(model.parameters(), foreach=False).step()


def of_slivers() -> None:
    """Ask for 4 MiB where much is free, in gaps of 2 MiB."""
    small = [tensor(2) for _ in range(900)]
    del small[::2]
    kept = [tensor(230)]
    kept.append(tensor(4))


def below_gmlake() -> None:
    """Need more than there is, where gmlake stitches: nothing is idle."""
    with gmlake.enabled(optimize_for="memory"):
        pieces = [tensor(50) for _ in range(20)]
        del pieces[::2]
        while True:
            pieces.append(tensor(130))


def by_accumulated_losses() -> None:
    """Add up losses with their graphs."""
    model = nn.Linear(2048, 2048, device="cuda")
    total: Any = 0.0
    while True:
        total = total + model(torch.empty(8192, 2048, device="cuda")).sum()


def by_a_pool() -> None:
    """Have idle memory in a pool of its own, which serves nobody else."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        cached = tensor(1200)
        kept = tensor(10)
    del cached
    more = [tensor(300), tensor(300)]
    tensor(600)
    del kept, more


SCENARIOS: dict[str, Callable[[], None]] = {
    scenario.__name__: scenario
    for scenario in (
        *(fragmented, at_a_peak, by_another, by_a_leak, in_evaluation, by_a_limit),
        *(of_another_stream, by_optimizer_state, by_accumulated_losses, by_a_pool),
        *(of_slivers, below_gmlake),  # the last one lets gmlake in, which stays
    )
}


def main() -> None:
    """Run each until memory is refused, and keep what PyTorch knows then."""
    folder = Path(sys.argv[1])
    kept: list[dict[str, Any]] = []
    private: Any = torch._C  # noqa: SLF001
    observe = private._cuda_attach_out_of_memory_observer  # noqa: SLF001
    observe(lambda *_: kept.append(torch.cuda.memory._snapshot()))  # noqa: SLF001
    said: dict[str, str] = {}
    for name, scenario in SCENARIOS.items():
        torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001
        try:
            scenario()
        except torch.OutOfMemoryError as error:
            said[name] = str(error)
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(kept[-1], protocol=4))
        kept.clear()
        torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
