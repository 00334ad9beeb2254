"""Interrupt a with block of gmlake at every line in turn, and see what is left; prints JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from tests.standin import interrupting
from torch import overrides
from torch.nn.modules import module
from torch.optim import optimizer
from torch.utils import _python_dispatch

import gmlake
from gmlake.pytorch import phases
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.interrupting import Place

    from gmlake.snapshots import DeviceSnapshot
    from gmlake.snapshots.sites import Site

ROUNDS: Final = 2
"""How often to interrupt a line that runs again and again: in its first rounds."""
ENOUGH: Final = 10
"""How many faults to tell of."""

gmlake.enable()  # and let PyTorch import what a step needs
torch.nn.Linear(1, 1).cuda()(torch.ones(1, device="cuda")).backward()
torch.optim.SGD([torch.ones(1, device="cuda")]).step()
gc.freeze()  # what was imported so far is not looked through at each line
BASE = torch.nn.Linear(64, 64).cuda()
SGD = torch.optim.SGD(BASE.parameters(), lr=0.1)
METHODS = {
    (kind, name): vars(kind).get(name)
    for kind in (torch.Tensor, torch.UntypedStorage)
    for name in ("tolist", "numpy", "data_ptr", "resize_")
}
held: dict[str, Any] = {}  # by the program, as a notebook does


def run(use: Callable[[], object], until: Place | None = None) -> list[Place]:
    """Run it, with a KeyboardInterrupt at a line of gmlake's; return the lines that ran."""
    seen, error = interrupting.run(use, until)
    if isinstance(error, KeyboardInterrupt):
        held["error"] = error
    elif error is not None:
        raise error
    return seen


def at_every_line(use: Callable[[], object], gives: Callable[[], object]) -> dict[str, Any]:
    """Return how many lines were interrupted, what was wrong after which, and what was mended late.

    gives: uses it, uninterrupted, and returns what came of it and what it left. Late: once the
    interrupt and its frames are forgotten, which a notebook keeps until the next error.
    """
    for _ in range(2):
        gives()
    expected = gives()

    def complaint() -> str:
        gc.collect()
        try:
            told = gives()
        except Exception as error:  # noqa: BLE001 (that is what is looked for)
            return f"{type(error).__name__}: {error}"
        return "" if told == expected else f"{told}, not {expected}"

    lines = late = 0
    wrong: dict[str, str] = {}
    for place in run(use):
        if place[2] > ROUNDS or len(wrong) > ENOUGH:
            continue
        lines += run(use, place)[-1] == place
        if complaint():
            late += 1
            held.pop("error", None)
            if said := complaint():
                wrong[str(place)] = said
    return {"lines": lines, "late": late, "wrong": wrong}


def train() -> None:
    """Take and give some memory."""
    BASE(torch.randn(8, 64, device="cuda")).sum().backward()
    SGD.step()
    SGD.zero_grad(set_to_none=True)


def left() -> dict[str, Any]:
    """Say what of recordings is left."""
    dispatch = _python_dispatch._get_current_dispatch_mode_stack()  # noqa: SLF001
    return {
        "hooks": (
            len(module._global_forward_pre_hooks),  # noqa: SLF001
            len(module._global_forward_hooks),  # noqa: SLF001
            len(module._global_forward_hooks_always_called),  # noqa: SLF001
            len(optimizer._global_optimizer_pre_hooks),  # noqa: SLF001
            len(optimizer._global_optimizer_post_hooks),  # noqa: SLF001
        ),
        "modes": list(map(repr, [*overrides._get_current_function_mode_stack(), *dispatch])),  # noqa: SLF001
        "in a mode": _python_dispatch.is_in_torch_dispatch_mode(),
        "methods": [
            name for (kind, name), was in METHODS.items() if vars(kind).get(name) is not was
        ],
        "events": gmlake.enable().lake().history()[1],
        "listeners": len(phases._listeners),  # noqa: SLF001
        "steps": len(phases._steps),  # noqa: SLF001
        "recording": repr(gmlake.stop_recording()),
    }


# ---- what is interrupted


def region() -> tuple[Callable[[], None], Callable[[], object]]:
    """Return a use of gmlake.enabled(), and what tells what it gives."""
    gmlake.disable()

    def use() -> None:
        with gmlake.enabled() as held["it"]:
            train()

    def gives() -> object:
        held.pop("it", None)
        use()
        return gmlake.is_enabled()

    return use, gives


def step() -> tuple[Callable[[], None], Callable[[], object]]:
    """Return a step of an AutoPlan, and what tells what it gives."""
    auto = gmlake.AutoPlan()

    def use() -> None:
        with auto.step(), gmlake.phase("forward"):
            train()

    def gives() -> object:
        use()
        return len(phases._steps)  # noqa: SLF001

    return use, gives


def record() -> tuple[Callable[[], None], Callable[[], object]]:
    """Return a use of gmlake.record(), inside of a mode of the program's own."""

    def use() -> None:
        with torch.device("cuda"):
            with gmlake.record(1 << 12, frames=1, model=BASE) as held["it"]:
                train()
            held["device"] = torch.empty(1).device.type

    def gives() -> object:
        train()
        use()
        seen = held["it"].snapshot.devices[0]
        return (
            held["device"],
            events(seen, held["it"].snapshot.sites),
            seen.categories[seen.lives.born >= 0].tolist(),
            left(),
        )

    return use, gives


def phase() -> tuple[Callable[[], None], Callable[[], object]]:
    """Return a use of gmlake.phase(), within a recording that goes on."""
    held["recording"] = gmlake.record(1 << 8, model=BASE)

    def use() -> None:
        with gmlake.phase("outer"), gmlake.phase("inner"):
            train()

    def gives() -> object:
        train()
        before = gmlake.snapshot().devices[0].total_events
        use()
        torch.empty(1, device="cuda")
        seen = gmlake.snapshot()
        return events(seen.devices[0], seen.sites)[before - seen.devices[0].total_events :]

    return use, gives


def events(seen: DeviceSnapshot, sites: dict[int, Site]) -> list[tuple[int, int, str]]:
    """Return the events, each with who asked; of a mark, its name."""
    marks = iter([label for _, label in seen.marks])
    rows = zip(seen.events["kind"], seen.events["size_bytes"], seen.event_sites, strict=True)
    return [
        (
            int(kind),
            int(size),
            next(marks).rstrip("0123456789") if kind == Kind.MARK else str(sites.get(int(site))),
        )
        for kind, size, site in rows
    ]


def main(*uses: Callable[[], tuple[Callable[[], None], Callable[[], object]]]) -> None:
    """Print what was seen of the one that is named."""
    kinds = {one.__name__: one for one in uses}
    print(json.dumps(at_every_line(*kinds[sys.argv[1]]())))


if __name__ == "__main__":
    main(region, step, record, phase)
