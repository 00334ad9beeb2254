"""One recorded run: memory history from the first allocation on, and what PyTorch reports.

A workload is written against `Session`: it asks where and how large to run, and marks moments at
which PyTorch's statistics are kept.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

# Memory history and snapshots have private names only.
# ruff: noqa: SLF001

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import SIZES, Config

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_MOST_EVENTS = 100_000_000
_MEMORY_ACTIONS = {
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
}


@dataclass(frozen=True)
class Scale:
    """How much of a workload to run: "full" is what its name says.

    layers: at most so many. "short" keeps the others, so that sizes of tensors stay true and only
    their number falls.
    """

    name: str
    layers: int = 1 << 30
    width: int = 1 << 30
    tokens: int = 1 << 30
    vocab: int = 1 << 30
    batch: int = 1 << 30


SCALES = {
    scale.name: scale
    for scale in (
        Scale("full"),
        Scale("short", layers=3),
        Scale("tiny", layers=2, width=64, tokens=64, vocab=512, batch=2),
    )
}


@dataclass
class Mark:
    """What PyTorch reported at one moment.

    events: memory events of the device before it, which is an index into the requests of gmlake's
        trace; known when the run is over.
    stats: torch.cuda.memory_stats(). free_bytes, total_bytes: torch.cuda.mem_get_info().
    is_trim: torch.cuda.empty_cache() was called right after it.
    """

    label: str
    stats: dict[str, int]
    free_bytes: int
    total_bytes: int
    is_trim: bool = False
    events: int = -1


@dataclass
class Session:
    """Where a workload runs, how much of it, and what was noted meanwhile.

    limit_bytes: memory that PyTorch may take from the device at most; None: all of it.
    """

    scale: Scale
    steps: int
    limit_bytes: int | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cuda", 0))
    marks: list[Mark] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        """Switch recording on, before anything is allocated."""
        torch.manual_seed(0)
        torch.cuda.memory._record_memory_history(
            context=None, stacks="python", max_entries=_MOST_EVENTS
        )
        self._limit_memory()
        self.mark("begin")

    def _limit_memory(self) -> None:
        total_bytes = torch.cuda.mem_get_info(self.device)[1]
        if self.limit_bytes is None or total_bytes <= self.limit_bytes:
            self.limit_bytes = None
            return
        fraction = self.limit_bytes / total_bytes
        torch.cuda.set_per_process_memory_fraction(fraction, self.device)
        self.limit_bytes = int(fraction * total_bytes)  # as PyTorch computes it

    # ---- sizes

    def config(self, size: str) -> Config:
        """Return the sizes of a GPT of that name at this scale."""
        full, scale = SIZES[size], self.scale
        width = min(full.width, scale.width)
        return replace(
            full,
            layers=min(full.layers, scale.layers),
            width=width,
            heads=min(full.heads, max(1, width // 16)),
            context=min(full.context, scale.tokens),
            vocab=min(full.vocab, scale.vocab),
        )

    def batch(self, batch: int) -> int:
        """Return how many sequences or pictures a step has at this scale."""
        return min(batch, self.scale.batch)

    # ---- notes

    def mark(self, label: str, *, is_trim: bool = False) -> None:
        """Keep what PyTorch reports now, and note its place among the events."""
        stats = torch.cuda.memory_stats(self.device)
        free_bytes, total_bytes = torch.cuda.mem_get_info(self.device)
        # A snapshot leaves an event behind, by which `finish` finds the place.
        torch.cuda.memory_snapshot(include_traces=False)
        self.marks.append(Mark(label, dict(stats), free_bytes, total_bytes, is_trim))

    def empty_cache(self) -> None:
        """Call torch.cuda.empty_cache(), which leaves no event of its own, and note it."""
        self.mark("empty_cache", is_trim=True)
        torch.cuda.empty_cache()

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the snapshot and the notes about the run."""
        self.mark("end")
        seconds = time.perf_counter() - self.began
        snapshot = torch.cuda.memory._snapshot()
        events = self._place_marks(snapshot["device_traces"][self.device.index])
        last = self.marks[-1]
        notes = {
            "device": torch.cuda.get_device_name(self.device),
            "capability": list(torch.cuda.get_device_capability(self.device)),
            "torch": torch.__version__,
            "settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
            "total_bytes": last.total_bytes,
            "limit_bytes": self.limit_bytes,
            "events": events,
            "seconds": round(seconds, 3),
            "peak_allocated_bytes": last.stats["allocated_bytes.all.peak"],
            "peak_reserved_bytes": last.stats["reserved_bytes.all.peak"],
            "marks": [vars(mark) for mark in self.marks],
        }
        return snapshot, notes

    def _place_marks(self, events: list[dict[str, Any]]) -> int:
        """Give each mark the number of memory events before it; return how many there are."""
        count, places = 0, []
        for event in events:
            if event["action"] == "snapshot":
                places.append(count)
            count += event["action"] in _MEMORY_ACTIONS
        if len(places) not in (len(self.marks), len(self.marks) + 1):
            message = f"{len(self.marks)} marks were set, {len(places)} snapshots are in the trace"
            raise RuntimeError(message)
        for mark, place in zip(self.marks, places, strict=False):
            mark.events = place
        return count


class SideStream:
    """A second stream beside the current one."""

    def __init__(self, device: torch.device) -> None:
        """Make the stream."""
        self.stream = torch.cuda.Stream(device)

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which the stream is the current one."""
        return torch.cuda.stream(self.stream)

    def after_main(self, *used: torch.Tensor) -> None:
        """Let the stream go on only after the current one; it uses these tensors."""
        self.stream.wait_stream(torch.cuda.current_stream())
        for tensor in used:
            tensor.record_stream(self.stream)

    def before_main(self, *made: torch.Tensor) -> None:
        """Let the current stream wait for this one, which made these tensors for it."""
        main = torch.cuda.current_stream()
        main.wait_stream(self.stream)
        for tensor in made:
            tensor.record_stream(main)


@dataclass(frozen=True)
class Workload:
    """A program to record.

    limit_gib: by scale, the memory it may take at most, for programs that run out of it.
    """

    run: Callable[[Session], None]
    limit_gib: dict[str, float] = field(default_factory=dict)

    def limit_bytes(self, scale: Scale) -> int | None:
        """Return the limit at that scale in bytes, None for the whole device."""
        gib = self.limit_gib.get(scale.name)
        return None if gib is None else int(gib * (1 << 30))
