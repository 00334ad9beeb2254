"""Sleeps with process groups whose backends count what they are asked, in PyTorch's own table.

The PyTorch here has no NCCL that suspends, and no process runs beside this one.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import tempfile
from typing import Any

import torch
from torch import distributed

import gmlake

GIB = 1 << 30
TABLE: dict[Any, Any] = distributed.distributed_c10d._world.pg_names  # noqa: SLF001 (where the groups are put)
told: list[str] = []


class Old:
    """As PyTorch has it up to 2.11."""

    def name(self) -> str:
        return "nccl"


class Backend(Old):
    """As PyTorch 2.12 has it. fails: the call that does."""

    def __init__(self, group: str, fails: str = "") -> None:
        self.group = group
        self.fails = fails
        self.suspended = 0

    def _tell(self, call: str) -> None:
        told.append(f"{self.group}: {call}")
        if self.fails == call:
            raise RuntimeError(f"NCCL error: {call} of {self.group}\nand more")

    def suspend(self) -> None:
        self._tell("suspend")
        assert not self.suspended
        self.suspended = 1

    def resume(self) -> None:
        self._tell("resume")
        assert self.suspended
        self.suspended = 0

    def memory_stats(self) -> dict[str, int]:
        if self.fails in ("communicator not initialized", "NCCL 2.29.7 or later is required"):
            raise RuntimeError(f"memory_stats: {self.fails}")
        return {"suspend": 3 * GIB, "suspended": self.suspended, "persist": GIB, "total": 4 * GIB}


class Group:
    """A process group with that backend for GPUs."""

    def __init__(self, backend: object) -> None:
        self.backend = backend

    def _get_backend(self, device: torch.device) -> object:
        assert device == torch.device("cuda", 0)
        return self.backend


def _put(**backends: object) -> None:
    for group in [group for group in TABLE if isinstance(group, Group)]:
        del TABLE[group]
    TABLE.update((Group(backend), name) for name, backend in backends.items())


def _heard(act: Any) -> list[str]:
    """Return what the backends and the hooks were told meanwhile, and the failure."""
    told.clear()
    try:
        act()
    except (RuntimeError, gmlake.Error) as error:
        told.append(f"raised {error}".splitlines()[0])
    return told.copy()


def _seen(report: gmlake.SleepReport) -> list[list[Any]]:
    return [
        [one.name, one.is_suspended, one.held_bytes, one.suspended_bytes, one.why_left]
        for one in report.communicators
    ]


def main() -> None:
    """Sleep and wake in every way."""
    results: dict[str, Any] = {}
    with gmlake.enabled():
        with gmlake.region("weights", backup="cpu"):
            weights = torch.ones(1 << 20, device="cuda")
        results["without_distributed"] = _seen(gmlake.sleep(nccl=True)) + _seen(gmlake.wake())
        with tempfile.NamedTemporaryFile() as met:
            distributed.init_process_group(
                "gloo", init_method=f"file://{met.name}", rank=0, world_size=1
            )
        results["gloo"] = _seen(gmlake.sleep(nccl=True)) + _seen(gmlake.wake())

        tp, dp = Backend("tp"), Backend("dp")
        gmlake.on_sleep(
            lambda name: told.append(f"{name}: before"), lambda name: told.append(f"{name}: after")
        )
        _put(tp=tp, dp=dp)
        results["plain"] = [_heard(gmlake.sleep), _heard(gmlake.wake)]
        report = []
        results["both"] = [
            _heard(lambda: report.append(gmlake.sleep(nccl=True))),
            _heard(lambda: report.append(gmlake.wake())),
        ]
        results["reports"] = [_seen(one) for one in report]
        results["text"] = str(report[0])

        tp.suspended = 1
        results["suspended_before"] = _heard(lambda: gmlake.sleep(nccl=True))
        gmlake.wake()

        old, unable = Old(), Backend("unable", "NCCL 2.29.7 or later is required")
        _put(old=old, unable=unable, lazy=Backend("lazy", "communicator not initialized"), tp=tp)
        results["left"] = [_seen(gmlake.sleep(nccl=True)), _seen(gmlake.wake())]

        _put(tp=tp, dp=Backend("dp", "suspend"))
        results["refused"] = _heard(lambda: gmlake.sleep(nccl=True))
        results["awake_after"] = [not gmlake.regions()[0].is_asleep, tp.suspended == 0]

        _put(tp=tp)
        shared = weights.untyped_storage()._share_cuda_()
        results["region_refused"] = _heard(lambda: gmlake.sleep(nccl=True))
        results["resumed_after"] = tp.suspended == 0
        del shared
    print(json.dumps(results))


main()
