"""The process on the stand-in: it imports PyTorch once, and forks a process for each batch.

It reads one JSON object a line: mode, seeds, skip (refused steps by seed), and perhaps ops, which
are taken instead of those that the seeds give. A fork writes a line before each program and one
after it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.standin.differential.kinds import draw
from tests.standin.differential.machine import Arena, Machine, Outcome
from tests.standin.differential.own import Neighbour, Own
from tests.standin.differential.programs import Op

import gmlake

if TYPE_CHECKING:
    from tests.standin.differential.programs import Program

_KEPT: list[Arena] = []


def say(**values: Any) -> None:
    os.write(1, (json.dumps(values) + "\n").encode())


def run_batch(order: dict[str, Any]) -> None:
    """Run programs until one has a problem."""
    arena: Arena | None = None
    package = gmlake if order["mode"] == "gmlake" else None
    for seed in order["seeds"]:
        say(begin=seed)
        program = draw(seed)
        if "ops" in order:
            program.ops[:] = [Op(*each) for each in order["ops"]]
        if program.setting.neighbour:
            outcome = with_neighbour(program)
        else:
            arena = arena or Arena()
            arena.used = 0
            skip = tuple(order["skip"].get(str(seed), ()))
            kind = Own if program.setting.own else Machine
            outcome = kind(program, arena, gmlake=package, skip=skip).run()
        say(end=asdict(outcome))
        if outcome.problem or outcome.left or program.setting.neighbour:
            return
        gc.collect(0)


def with_neighbour(program: Program) -> Outcome:
    """Run a program of two processes, each of which uses CUDA for the first time."""

    def make() -> Own:
        _KEPT.append(Arena())  # PyTorch would ask each stream about it, also those that are gone
        machine = Own(program, _KEPT[0], gmlake=gmlake)
        machine.settings = {"share": "device"}
        return machine

    neighbour = Neighbour(make)
    machine = make()
    machine.neighbour = neighbour
    outcome = machine.run()
    os.kill(neighbour.child, signal.SIGKILL)
    os.waitpid(neighbour.child, 0)
    return outcome


def main() -> None:
    """Serve until the input ends."""
    for name in ("enable", "elastic", "region"):
        getattr(gmlake, name)  # imports what a fork would have to import
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
