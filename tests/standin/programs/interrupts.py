"""Interrupt a with block of gmlake at every line in turn, and see what is left; prints JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake.pytorch import phases

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT = str(gmlake.__file__).removesuffix("__init__.py")
gmlake.enable()
BASE = torch.nn.Linear(64, 64).cuda()


def count_and_break(use: Callable[[], object], at: int) -> int:
    """Run it and raise KeyboardInterrupt at line number `at` of gmlake's; return how many ran."""
    seen = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        use()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen


def at_every_line(use: Callable[[], object], check: Callable[[], str]) -> dict[str, Any]:
    """Return how many lines there are, and what was wrong after which."""
    use()
    use()
    lines = count_and_break(use, 0)
    wrong: dict[int, str] = {}
    for at in range(1, lines + 1):
        count_and_break(use, at)
        gc.collect()
        try:
            use()
            said = check()
        except Exception as error:  # noqa: BLE001 (that is what is looked for)
            said = f"{type(error).__name__}: {error}"
        if said:
            wrong[at] = said
            break
    return {"lines": lines, "wrong": wrong}


def train() -> None:
    """Take and give some memory."""
    BASE(torch.randn(8, 64, device="cuda")).sum().backward()


def region() -> None:
    """Use gmlake.enabled()."""
    with gmlake.enabled():
        train()


def in_region() -> str:
    """Say what of a region is left."""
    return "still enabled" if gmlake.is_enabled() else ""


def steps() -> tuple[Callable[[], None], Callable[[], str]]:
    """Return a step of an AutoPlan, and what says what of it is left."""
    auto = gmlake.AutoPlan(BASE)

    def step() -> None:
        with auto.step(), gmlake.phase("forward"):
            train()

    def left() -> str:
        return "still watching" if phases._watching else ""  # noqa: SLF001

    return step, left


def main() -> None:
    """Print what was seen."""
    if sys.argv[1] == "region":
        gmlake.disable()
        told = at_every_line(region, in_region)
    else:
        told = at_every_line(*steps())
    print(json.dumps(told))


if __name__ == "__main__":
    main()
