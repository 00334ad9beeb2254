"""Programs that one allocation serves; each prints what it saw as JSON.

The first argument names one of the functions below.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.planner.autoplan import MIB, Training
from tests.standin.refusal import refused

import gmlake
from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable


def _everything_of(training: Training) -> list[torch.Tensor]:
    found: list[torch.Tensor] = list(training.model.parameters())
    for state in training.optimizer.state.values():
        found += [value for value in state.values() if value.is_cuda]
    return found


def _told(session: Any, training: Training | None = None) -> dict[str, Any]:
    lake = session.lake()
    told = {
        "arena": lake.arena,
        "stats": {name: lake.stats()[name] for name in ("reserved_bytes", "peak_reserved_bytes")},
        "calls": lake.stats()["driver_calls"],
        "asked": control.calls(),
        "reserved": torch.cuda.memory_reserved(),
    }
    if training:
        begin, size = lake.arena or (0, 0)
        told["is_inside"] = all(
            begin <= one.data_ptr() and one.data_ptr() + one.nbytes <= begin + size
            for one in _everything_of(training)
        )
    return told


def train(capacity: str, arena: str) -> dict[str, Any]:
    """Take a few steps."""
    control.reset_calls()
    knobs = {"arena": arena} if arena else {}
    with gmlake.enabled(capacity=capacity or None, **knobs) as session:
        training = Training()
        for _ in range(4):
            training.step()
        told = _told(session, training)
        before = torch.cuda.memory_allocated()
        told["refusal"] = refused(lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))
        training.step()
        told["is_whole_after"] = torch.cuda.memory_allocated() == before
        told["policy"] = session.policy
        return told


def plan(path: str) -> dict[str, Any]:
    """Plan steps, and save the plan."""
    with gmlake.enabled(arena="2GiB") as session:
        auto, training = gmlake.AutoPlan(), Training("after")
        for _ in range(10):
            with auto.step():
                training.step()
        auto.save(path)
        return _told(session, training)


def loaded(path: str, arena: str) -> dict[str, Any]:
    """Serve steps by a saved plan, from an arena of just that size."""
    with gmlake.enabled(arena=arena) as session:
        auto, training = gmlake.AutoPlan.load(path), Training("after")
        hits = []
        for _ in range(4):
            with auto.step():
                training.step()
            hits.append(auto.last.hit_rate if auto.last else 0)
        return _told(session, training) | {"hits": hits}


def freed() -> dict[str, Any]:
    """What is freed at the end of an arena is not held any more, as far as PyTorch is told."""
    with gmlake.enabled(arena="1GiB"):
        first = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        second = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        held = [torch.cuda.memory_reserved()]
        del second
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
        del first
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    return {"held": held}


PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {
    "train": train,
    "plan": plan,
    "loaded": loaded,
    "freed": freed,
}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](*sys.argv[2:])))
