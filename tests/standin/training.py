"""A small GPT in training, for tests that want to see what it does to memory."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import GPT, Config, random_batch
from torch import nn
from torch.amp.grad_scaler import GradScaler

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

CONFIG = Config(layers=4, width=256, heads=4, context=128, vocab=1000)
MEMORY_CALLS = {
    *("cudaMalloc", "cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaFree", "cudaFreeAsync"),
    *("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"),
    *("cuMemUnmap", "cuMemRelease", "cuMemAddressFree"),
}


def memory_calls(calls: Counter[str]) -> dict[str, int]:
    """Return those of the calls that take memory of a device or give it back."""
    return {name: count for name, count in calls.items() if name in MEMORY_CALLS}


class Trainer:
    """A model with its optimizer; step() trains it once.

    dtype: of autocast; None: no autocast. With float16, gradients are scaled.
    """

    def __init__(
        self, dtype: torch.dtype | None = None, *, has_checkpoints: bool = False, **options: Any
    ) -> None:
        with torch.device("cuda"):
            self.model = GPT(CONFIG, has_checkpoints=has_checkpoints)
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, **options)
        self.dtype = dtype
        self.scaler = GradScaler("cuda", enabled=dtype == torch.float16)

    def backward(self) -> None:
        """Compute gradients, for tokens [4, context]."""
        tokens = random_batch(CONFIG, 4, CONFIG.context, torch.device("cuda"))
        with torch.autocast("cuda", self.dtype, enabled=self.dtype is not None):
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.scaler.scale(loss).backward()

    def step(self) -> None:
        """Train once, clipping gradients."""
        self.backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def peak_of(run: Callable[[], None]) -> int:
    """Return by how much allocated memory rose at most meanwhile, in bytes."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    peak: int = torch.cuda.max_memory_allocated() - before
    return peak
