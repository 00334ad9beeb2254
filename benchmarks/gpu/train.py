"""Train the adapters of a language model under one allocator, and tell what its memory did.

    python -m gpu.train --allocator gmlake --size 1b --batch 16 --steps 24

Prints one JSON object. Allocators can be chosen once in a process, so that each run has its own;
gpu.compare starts them. Every run sees the same tokens and the same lengths, and is told to
compute deterministically: its losses have to be those of every other, bit for bit.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from gpu.model import SIZES, Sizes, Tuned
from gpu.settings import ALLOCATORS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def region(allocator: str, policy: str) -> AbstractContextManager[Any]:
    """Return what the whole run happens in; its value is a lake, or None."""
    if allocator != "gmlake":
        return nullcontext()
    import gmlake

    entered: AbstractContextManager[Any] = gmlake.enabled(policy=policy)
    return entered


def leave_only(left_bytes: int) -> None:
    """Take so much of the device, past every allocator, that only `left_bytes` are free."""
    torch.empty(1, device="cuda")  # now PyTorch's context exists and is this thread's
    free_bytes, _ = torch.cuda.mem_get_info()
    cuda, ballast = ctypes.CDLL("libcuda.so.1"), ctypes.c_ulonglong()
    taken_bytes = free_bytes - left_bytes
    if taken_bytes <= 0:
        sys.exit(f"gpu.train: {free_bytes} bytes are free, {left_bytes} shall be left")
    result = cuda.cuMemAlloc_v2(ctypes.byref(ballast), ctypes.c_size_t(taken_bytes))
    if result:
        sys.exit(f"gpu.train: cuMemAlloc of {taken_bytes} bytes answered {result}")


def lengths(steps: int, longest: int) -> list[int]:
    """Return the tokens of each step's sequences, multiples of 8, the longest among the first."""
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
    drawn = [8 * draw.randint(longest // 64, longest // 8) for _ in range(steps)]
    if steps > 1:
        drawn[1] = longest
    return drawn


class Run:
    """A model with its optimizer, and what was seen while it trained."""

    def __init__(self, sizes: Sizes, batch: int) -> None:
        """Make the model on the GPU."""
        self.sizes, self.batch = sizes, batch
        self.free_before_bytes, _ = torch.cuda.mem_get_info()
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = Tuned(sizes)
        trained = [part for part in self.model.parameters() if part.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)
        self.model_bytes = torch.cuda.memory_allocated()
        self.losses: list[str] = []
        self.seconds: list[float] = []
        self.device_bytes = 0

    def step(self, length: int) -> None:
        """Train on one batch of random tokens [batch, length + 1]."""
        began = time.perf_counter()
        shape = (self.batch, length + 1)
        tokens = torch.randint(self.sizes.vocab, shape, device="cuda")
        loss = self.model.loss(tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(float(loss).hex())  # waits for the device
        self.seconds.append(time.perf_counter() - began)
        free_bytes, _ = torch.cuda.mem_get_info()
        self.device_bytes = max(self.device_bytes, self.free_before_bytes - free_bytes)

    def figures(self) -> dict[str, Any]:
        """Return what was seen; times in seconds."""
        # The first half fills caches, loads kernels, and makes views.
        late = sorted(self.seconds[len(self.seconds) // 2 :])
        peak_allocated_bytes = torch.cuda.max_memory_allocated()
        peak_reserved_bytes = torch.cuda.max_memory_reserved()
        return {
            "model_bytes": self.model_bytes,
            "peak_allocated_bytes": peak_allocated_bytes,
            "peak_reserved_bytes": peak_reserved_bytes,
            "utilization": round(peak_allocated_bytes / peak_reserved_bytes, 4),
            "device_bytes": self.device_bytes,
            "steps_per_second": round(1 / late[len(late) // 2], 3),
            "seconds": [round(value, 4) for value in self.seconds],
            "losses": self.losses,
        }


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Run it all; `fits` is False where memory ran out."""
    sizes = SIZES[options.size]
    with region(options.allocator, options.policy) as lake:
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
        torch.utils.deterministic.fill_uninitialized_memory = False
        if options.leave:
            leave_only(options.leave)
        try:
            run = Run(sizes, options.batch)
            for length in lengths(options.steps, sizes.longest):
                run.step(length)
        except torch.OutOfMemoryError as refusal:
            return {"fits": False, "message": str(refusal).splitlines()[0]}
        told = {"fits": True, "device": torch.cuda.get_device_name(), **run.figures()}
        told["versions"] = {"torch": torch.__version__, "cuda": torch.version.cuda}
        if lake is not None:
            told["gmlake"] = {"mode": lake.mode, **lake.stats()}
        return told


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="default")
    parser.add_argument("--policy", default="stitch", help="of gmlake")
    parser.add_argument("--size", choices=SIZES, default="1b", help="of the model")
    parser.add_argument("--batch", type=int, default=16, help="sequences per step")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument(
        "--leave", type=int, default=0, help="bytes of the device to leave free; 0: all of them"
    )
    json.dump(train(parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
