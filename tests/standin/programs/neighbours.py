"""A process and a neighbour that share a device; prints what was seen as JSON.

Runs on a stand-in of 1 GiB whose memory has bytes and which both share. With the argument
`neighbour` it is the other one, which obeys lines.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.failures import failure

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

Result = dict[str, Any]
MIB = 1 << 20
SPARE = 256  # MiB that CUDA may need


def taken(size: int) -> torch.Tensor:
    """Return memory of that size."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def ends_of(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return where each 64 MiB begin and end: no chunk that is handed over is smaller."""
    parts = [part for each in tensors for part in each.flatten().split(64 * MIB)]
    return [end for part in parts for end in (part[:16], part[-16:])]


def marks(tensors: list[torch.Tensor], value: int) -> None:
    """Write there; the stand-in copies, and computes nothing."""
    source = torch.full((16,), value, dtype=torch.uint8)
    for end in ends_of(tensors):
        end.copy_(source)


def are_marked(tensors: list[torch.Tensor], value: int) -> bool:
    expected = torch.full((16,), value, dtype=torch.uint8)
    return all(torch.equal(end.cpu(), expected) for end in ends_of(tensors))


# ---- the neighbour -------------------------------------------------------------------------------


class Neighbour:
    """What it holds."""

    def __init__(self) -> None:
        self.held: list[torch.Tensor] = []
        self.cache = gmlake.elastic((1 << 20, MIB), torch.uint8)
        self.graph = torch.cuda.CUDAGraph()
        self.stream = torch.cuda.Stream()

    def hold(self, size: int) -> None:
        self.held.append(taken(size * MIB))

    def idle(self, size: int) -> None:
        """Hold so much, and no tensor."""
        self.hold(size)
        self.held.clear()

    def drop(self, _: int) -> None:
        self.held.clear()
        torch.cuda.empty_cache()

    def capture(self, begins: int) -> None:
        """Begin or end a capture; torch.cuda.graph() would release what is idle first."""
        with torch.cuda.stream(self.stream):
            if begins:
                self.graph.capture_begin()
                self.held.append(torch.zeros(1, device="cuda"))
            else:
                self.graph.capture_end()

    def rows_left(self, least: int) -> bool:
        return self.cache.rows >= least

    def rows(self, size: int) -> None:
        """Have so many rows of a MiB."""
        self.cache.resize(size)

    def fill(self, kept: int) -> None:
        """Fill the device with rows, of which all but so many may go."""
        self.cache.fill(lambda rows: max(rows, kept))

    def doze(self, size: int) -> None:
        """Have so much in a region that may be put to sleep."""
        with gmlake.region("dozes", backup="cpu", yields=True):
            self.hold(size)
        self.mark(5)

    def dozes(self, _: int) -> bool:
        return gmlake.regions()[-1].is_asleep

    def awaken(self, _: int) -> bool:
        gmlake.wake("dozes")
        gmlake.wake("dozes")
        return are_marked(self.held, 5) and not gmlake.regions()[-1].is_asleep

    def mark(self, value: int) -> None:
        marks(self.held, value)

    def has(self, value: int) -> bool:
        return are_marked(self.held, value)

    def look(self, _: int) -> None:
        """Do nothing but answer."""


def obey() -> None:
    """Do what each line says; print what was given so far, in MiB, and whether it said yes."""
    one = Neighbour()
    one.idle(2)
    print(0, 0, flush=True)
    for line in sys.stdin:
        name, value = line.split()
        answer = getattr(one, name)(int(value))
        print(gmlake.sharing().given_bytes // MIB, int(answer or 0), flush=True)


class Other:
    """Starts a neighbour."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "neighbour"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.given, self.said = self._answer()

    def _answer(self) -> tuple[int, int]:
        assert self.process.stdout is not None
        given, said = self.process.stdout.readline().split()
        return int(given), int(said)

    def tell(self, name: str, value: int = 0) -> int:
        """Return how many MiB it has given since the last line."""
        assert self.process.stdin is not None
        print(name, value, file=self.process.stdin, flush=True)
        before = self.given
        self.given, self.said = self._answer()
        return self.given - before

    def says(self, name: str, value: int) -> bool:
        self.tell(name, value)
        return self.said == 1

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait()


# ---- what is seen --------------------------------------------------------------------------------


def refusal(size: int) -> str:
    """Return the text with which PyTorch is refused memory, as users know it; "" if it is not."""
    try:
        taken(size)
    except torch.OutOfMemoryError as error:
        return str(error)
    return ""


def refused(size: int) -> bool:
    """Whether it is refused."""
    return bool(refusal(size))


def serves(other: Other) -> Result:
    """A request needs what the neighbour holds idle; so much is given, and what is to be spare."""
    other.tell("idle", 800)
    first = taken(600 * MIB)
    given = other.tell("look")
    del first
    other.tell("drop")
    return {
        "about_what_is_missing": 600 - 224 + SPARE <= given < 790,
        "known": gmlake.sharing().neighbours == 1 and gmlake.sharing().why == "",
        "counted": gmlake.sharing().taken_bytes // MIB == given,
    }


def wakes(other: Other) -> Result:
    """A region that wakes needs it, too."""
    with gmlake.region("weights", backup="cpu"):
        weights = taken(600 * MIB).fill_(7)
    gmlake.sleep("weights")
    other.tell("idle", 800)
    gmlake.wake("weights")
    given = other.tell("look")
    place = weights.data_ptr()
    del weights
    other.tell("drop")
    return {"given": given >= 376, "awake": place != 0 and not gmlake.regions()[0].is_asleep}


def grows(other: Other) -> Result:
    """So does an elastic tensor."""
    with gmlake.elastic((1 << 20, 256), torch.float32) as cache:
        other.tell("idle", 800)
        cache.resize(600 << 10)
        given = other.tell("look")
    other.tell("drop")
    return {"given": given >= 376}


def shrinks(other: Other) -> Result:
    """What an elastic tensor no longer has is the device's, once it is given."""
    other.tell("rows", 700)
    other.tell("rows", 64)
    mine = taken(600 * MIB)
    given = other.tell("look")
    del mine
    other.tell("rows", 0)
    other.tell("drop")
    return {"given": 376 - 64 <= given < 636}


def yields(other: Other) -> Result:
    """A cache that fills the device gives rows to another process, once nothing there is idle."""
    other.tell("idle", 64)
    other.tell("fill", 300)
    mine = taken(300 * MIB)
    given = other.tell("look")
    too_much = refused(600 * MIB)
    kept = other.says("rows_left", 300)
    del mine
    other.tell("rows", 0)
    other.tell("drop")
    return {"given": 300 <= given < 700, "too_much": too_much, "kept": kept}


def dozes(other: Other) -> Result:
    """A region that may sleep does so for another process, and wakes with what it had."""
    other.tell("doze", 700)
    mine = taken(400 * MIB)
    given, asleep = other.tell("look"), other.says("dozes", 0)
    del mine
    torch.cuda.empty_cache()
    awake = other.says("awaken", 0)
    other.tell("drop")
    return {"given": given >= 700, "asleep": asleep, "awake": awake}


def natives(other: Other) -> Result:
    """And memory that PyTorch's own allocator takes."""
    other.tell("idle", 800)
    with gmlake.enabled("caching"):
        mine = taken(600 * MIB)
    given = other.tell("look")
    del mine
    torch.cuda.empty_cache()
    other.tell("drop")
    return {"given": given >= 376}


def pools(other: Other) -> Result:
    """And that of a private pool."""
    pool = torch.cuda.MemPool()
    other.tell("idle", 800)
    with torch.cuda.use_mem_pool(pool):
        mine = taken(600 * MIB)
    given = other.tell("look")
    del mine, pool
    gc.collect()
    torch.cuda.empty_cache()
    other.tell("drop")
    return {"given": given >= 376}


def limits(other: Other) -> Result:
    """Nobody gives what this process may not have."""
    other.tell("idle", 800)
    torch.cuda.set_per_process_memory_fraction(0.3)
    is_refused = refused(600 * MIB)
    torch.cuda.set_per_process_memory_fraction(1.0)
    given = other.tell("look")
    is_too_much_refused = refused(2000 * MIB)
    return {
        "refused": is_refused,
        "not_asked": given == 0,
        "too_much": is_too_much_refused and other.tell("drop") == 0,
    }


def captures(other: Other) -> Result:
    """Who captures gives nothing until the capture has ended."""
    other.tell("idle", 800)
    other.tell("capture", 1)
    is_refused = refused(600 * MIB)
    given = other.tell("capture", 0)
    is_served = not refused(600 * MIB)
    return {
        "refused": is_refused,
        "kept": given == 0,
        "later": is_served and other.tell("drop") > 0,
    }


def graphs(other: Other) -> Result:
    """A graph that is captured takes what others hold idle."""
    graph = torch.cuda.CUDAGraph()
    other.tell("idle", 800)
    with torch.cuda.graph(graph):
        mine = taken(600 * MIB).zero_()
    given = other.tell("look")
    graph.replay()
    torch.cuda.synchronize()
    del mine, graph
    gc.collect()
    torch.cuda.empty_cache()
    other.tell("drop")
    return {"given": given >= 376}


def lives(other: Other) -> Result:
    """What is in use stays, and one who needs more is refused."""
    other.tell("hold", 700)
    text = refusal(600 * MIB)
    (seen,) = gmlake.sharing().others
    return {
        "refused": "1 process with gmlake shares the device: 7" in text,
        "kept": other.tell("drop") == 0,
        "known": (seen.process, seen.passed_over) == (other.process.pid, "")
        and seen.held_bytes >= 700 * MIB,
    }


def forks(other: Other) -> Result:
    """A child takes nothing along, and nothing away."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    other.tell("idle", 700)
    is_served = not refused(600 * MIB)
    return {"ended": status == 0, "served": is_served and other.tell("drop") > 0}


def begins(other: Other) -> Result:
    """Who begins needs room for what CUDA takes itself: a GiB, or what the others can give."""
    other.tell("idle", 900)
    another = Other()
    given = other.tell("look")
    return {"given": given >= 890, "ended": another.end() == 0}


def killed(other: Other) -> Result:
    """One that is killed leaves nothing: its memory, its place."""
    other.tell("idle", 700)
    other.process.kill()
    other.process.wait()
    return {"served": not refused(900 * MIB), "gone": gmlake.sharing().neighbours == 0}


def failure_of(share: str | None) -> str:
    return failure(lambda: gmlake.enabled(share=share)).removeprefix("ValueError: ")


def terms() -> Result:
    """Wrong values are named, with the variable that they come from."""
    os.environ["GMLAKE_SHARE"] = "host"
    from_variable = failure_of(None)
    del os.environ["GMLAKE_SHARE"]
    return {
        "way": "no way to share is called 'host'; there are: device" in failure_of("host"),
        "variable": from_variable.startswith("GMLAKE_SHARE: "),
        "priority": "priority=high is no whole number from -1000 to 1000"
        in failure_of("device,priority=high"),
        "weight": "weight=0 is no whole number from 1 to 1000" in failure_of("device,weight=0"),
        "name": "'age=1' is neither priority=NUMBER nor weight" in failure_of("1,age=1"),
        "good": failure_of("device, weight=3") == failure_of("0") == "",
    }


def main() -> int:
    """Run all parts, and print."""
    torch.cuda.init()
    if sys.argv[1:] == ["neighbour"]:
        gmlake.enable(share="device")
        obey()
        return 0
    gmlake.enable()
    taken(1)
    results: Result = {
        "before": {
            "why": "was not asked for" in gmlake.sharing().why,
            "number": failure(lambda: gmlake.sharing(-1))
            == "ValueError: no device has the number -1",
        }
    }
    gmlake.enable(share="device,priority=1,weight=2")
    results["terms"] = terms()
    first = Other()
    parts: list[Callable[[Other], Result]] = [
        serves, wakes, grows, shrinks, yields, dozes, natives, pools, limits, captures, graphs,
        lives, forks, begins,
    ]  # fmt: skip
    for part in parts:
        results[part.__name__] = part(first)
        gc.collect()
        torch.cuda.empty_cache()
    results["ended"] = {"well": first.end() == 0}
    results["killed"] = killed(Other())
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
