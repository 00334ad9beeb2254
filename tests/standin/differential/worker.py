"""The process on the stand-in: it imports PyTorch once, and forks a process for each batch.

It reads one JSON object a line: mode, seeds, and skip (refused steps by seed). A fork writes a line
before each program and one after it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from dataclasses import asdict
from typing import Any

import torch
from tests.standin.differential.kinds import draw
from tests.standin.differential.machine import Arena, Machine, Outcome

import gmlake


def say(**values: Any) -> None:
    """Write one line."""
    os.write(1, (json.dumps(values) + "\n").encode())


def run_batch(order: dict[str, Any]) -> None:
    """Run programs until one has a problem."""
    torch.cuda.init()
    arena = Arena()
    package = gmlake if order["mode"] == "gmlake" else None
    for seed in order["seeds"]:
        say(begin=seed)
        program = draw(seed)
        arena.used = 0
        skip = tuple(order["skip"].get(str(seed), ()))
        outcome: Outcome = Machine(program, arena, gmlake=package, skip=skip).run()
        say(end=asdict(outcome))
        if outcome.problem or outcome.left:
            return
        gc.collect(0)


def main() -> None:
    """Serve until the input ends."""
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                run_batch(order)
                code = 0
            except Exception:  # noqa: BLE001 (it is a fork, which ends here)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        say(pid=child)
        _, status = os.waitpid(child, 0)
        say(exit=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
