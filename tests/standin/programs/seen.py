"""Looks at a training under gmlake: snapshots, the table, and files that other tools read."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import gmlake
from gmlake.trace.layout import Kind


def train(steps: int = 4) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(256, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def share() -> dict[str, Any]:
    """Hold memory in three ways: in gmlake, in PyTorch's own allocator, and beside both."""
    with gmlake.Lake("cuda", "caching", capacity="1GiB") as lake:
        beside = [lake.allocate(40 << 20)]
        own = torch.empty(60 << 20, dtype=torch.uint8, device="cuda")
        with gmlake.enabled():
            ours = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
            with gmlake.region("kept"):
                kept = torch.empty(80 << 20, dtype=torch.uint8, device="cuda")
            seen = gmlake.snapshot()
            gmlake.sleep()
            asleep = gmlake.snapshot()[0].counters
        del beside, own, ours, kept
        return {
            "counters": seen[0].counters,
            "asleep": asleep,
            "left": torch.cuda.mem_get_info()[0],
            "facts": dict(seen.report().facts),
            "table": str(gmlake.memory_summary()),
        }


def main(folder: Path) -> dict[str, Any]:
    with gmlake.enabled():
        before = repr(gmlake.snapshot())
        recording = gmlake.record()
        torch.cuda.memory._record_memory_history(max_entries=100_000)  # noqa: SLF001 (its name)
        train()
        held = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        seen = gmlake.snapshot()
        counted = torch.cuda.memory_allocated()
        seen.save(folder / "seen.pickle")
        torch.cuda.memory._dump_snapshot(str(folder / "dumped.pickle"))  # noqa: SLF001
        figures = [type(figure).__name__ for figure in seen.report().figures]
        one = seen[torch.cuda.current_device()]
        found = held.data_ptr() in one.blocks["address"].tolist()
        table = str(gmlake.memory_summary())
        recording.stop()
        try:
            gmlake.snapshot(7)
        except ValueError as error:
            refusal = str(error)
    return {
        "before": before,
        "events": int((one.events["kind"] != Kind.MARK).sum()),
        "live_bytes": one.live_bytes,
        "swept_bytes": int(one.lives.live_bytes[-1]),
        "counted_bytes": counted,
        "peak_bytes": one.peak.live_bytes,
        "counted_peak_bytes": one.counters["peak_live_bytes"],
        "finds_a_tensor": found,
        "figures": figures,
        "table": table,
        "refusal": refusal,
    }


if __name__ == "__main__":
    print(json.dumps(share() if sys.argv[1] == "share" else main(Path(sys.argv[1]))))
