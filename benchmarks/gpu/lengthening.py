"""Train on longer and longer sequences under one allocator until memory ends.

gpu.frontier starts it.

A file gets a line of JSON for each length, as soon as it is known, so that it is there if the
process dies. At each length `longest` the sequences of a few steps have 0.5 to 1 of it, as in
fine-tuning without packing. Memory that is cached goes back to the device before each length, so
that a length is served as if it were the first. The first six steps are not timed: libraries plan
products then, and the allocator takes its memory. `driver_ns` is the time of gmlake's calls to the
driver in those that are.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gmlake.pytorch import Session
from gpu.programs import (
    LLAMAS,
    MIXTURES,
    LlamaTraining,
    MixtureTraining,
    ShardedTraining,
)
from gpu.settings import ALLOCATORS, FRONTIERS
from gpu.varying import REFUSED, begin, is_short_of_memory, region
from machine import end_process

if TYPE_CHECKING:
    from torch import Tensor


SHARES = (0.6, 1.0, 0.7, 0.9, 0.5, 0.8)
"""Of the longest sequence, by step; after the last again from the first."""
UNTIMED = 6
TIMED = {"dense": 6, "moe": 18, "fsdp2": 6}
"""Steps; those of a mixture take turns with the host, whose times differ more."""


class Trainer:
    """A model that is trained on sequences of any length.

    timed: how many steps of a length.
    """

    def __init__(self, model: str, *, is_tiny: bool) -> None:
        """Build it on the current device."""
        torch.manual_seed(0)
        self.timed = TIMED[model]
        self.mixture = self.llama = None
        size = {"moe": "full", "fsdp2": "2b", "dense": "1b"}[model]
        if model == "moe":
            self.mixture = MixtureTraining(MIXTURES["tiny" if is_tiny else size])
            self.batch = self.mixture.sizes.batch
            return
        sizes = replace(LLAMAS["tiny" if is_tiny else size], batch=1)
        self.llama = ShardedTraining(sizes, 1) if model == "fsdp2" else LlamaTraining(sizes, 1)
        self.batch = 1

    def take(self, length: int) -> Tensor:
        """Take a step, with the same random numbers whenever it has that length."""
        torch.manual_seed(length)
        if self.mixture:
            self.mixture.sizes = replace(self.mixture.sizes, tokens=length)
            return self.mixture.step(0)
        assert self.llama is not None  # noqa: S101 (for the type checker)
        self.llama.lengths = [length]
        return self.llama.step(0)


def at_length(trainer: Trainer, longest: int, lake: Session | None) -> dict[str, Any]:
    """Take the steps of a length; return tokens a second and peaks in bytes, or what ended it."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    lengths = [round(longest * share) for share in islice(cycle(SHARES), UNTIMED + trainer.timed)]
    try:
        for length in lengths[:UNTIMED]:
            trainer.take(length)
        torch.cuda.synchronize()
        before_ns, began = driver_ns(lake), time.perf_counter()
        losses = [trainer.take(length) for length in lengths[UNTIMED:]]
        torch.cuda.synchronize()
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if not is_short_of_memory(error):
            raise
        return {"longest": longest, "refused": str(error).splitlines()[0]}
    took = time.perf_counter() - began
    stats = torch.cuda.memory_stats()
    return {
        "longest": longest,
        "tokens_per_second": round(trainer.batch * sum(lengths[UNTIMED:]) / took, 2),
        "driver_ns": driver_ns(lake) - before_ns,
        "timed_seconds": round(took, 4),
        "peak_allocated_bytes": stats.get("allocated_bytes.all.peak", 0),
        "peak_reserved_bytes": stats.get("reserved_bytes.all.peak", 0),
        "retries": stats.get("num_alloc_retries", 0),
        "loss": float(losses[-1]).hex(),
    }


def driver_ns(lake: Session | None) -> int:
    """Return what gmlake's calls to the driver took so far."""
    return lake.stats().get("driver_time_ns", 0) if lake else 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=FRONTIERS)
    parser.add_argument("--allocator", choices=ALLOCATORS, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True, help="file; the rank is added")
    parser.add_argument("--backend", default="nccl", help="of fsdp2: nccl, gloo, fake")
    parser.add_argument(
        "--left", type=int, default=0, help="bytes of the device to leave free; 0: all of them"
    )
    parser.add_argument("--tiny", action="store_true", help="sizes for the stand-in")
    options = parser.parse_args()
    rank = os.environ.get("RANK", "0")
    chosen = argparse.Namespace(
        program=options.model,
        record=None,
        limit=options.left,
        backend=options.backend,
        allocator=options.allocator,
        knobs=[],
    )
    with (
        region(chosen) as lake,
        Path(f"{options.output}.{rank}").open("w", encoding="utf-8") as file,
    ):
        begin(chosen)
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        print(json.dumps(about), file=file, flush=True)
        trainer = Trainer(options.model, is_tiny=options.tiny)
        for longest in options.lengths:
            told = at_length(trainer, longest, lake)
            print(json.dumps(told), file=file, flush=True)
            if "refused" in told:
                end_process(REFUSED)  # other ranks still wait for this one
    print(json.dumps({}))


if __name__ == "__main__":
    main()
    end_process()
