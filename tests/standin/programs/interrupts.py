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

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.interrupting import Place

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
        with auto.step():
            train()

    def gives() -> object:
        use()
        return auto.last is not None

    return use, gives


def main(*uses: Callable[[], tuple[Callable[[], None], Callable[[], object]]]) -> None:
    """Print what was seen of the one that is named."""
    kinds = {one.__name__: one for one in uses}
    print(json.dumps(at_every_line(*kinds[sys.argv[1]]())))


if __name__ == "__main__":
    main(region, step)
