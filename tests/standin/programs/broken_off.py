"""Break calls about sleep, elastic tensors and regions off at every place; prints JSON.

A place is a line of gmlake's or the return of a call in C. After each interrupt what Python says is
compared with what the core says, and then the next use has to work as if nothing had happened.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from tests.standin import interrupting

import gmlake
from gmlake import _core
from gmlake.pytorch import lakes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.interrupting import Place

MIB: Final = 1 << 20
ROUNDS: Final = 2
"""How often to interrupt a place that is passed again and again: in its first rounds."""

NAMES: Final = ("a", "b", "c")
told: list[tuple[str, str]] = []  # what the hooks heard since the last check
held: dict[str, Any] = {}

Case = tuple["Callable[[], object]", "Callable[[], object]", "Callable[[], str]"]
"""What comes before, what is interrupted, and what is wrong then or "" (it uses things again)."""


def sweep(before: Callable[[], object], use: Callable[[], object], wrong: Any) -> dict[str, Any]:
    """Return how many places were interrupted, and what was wrong after which."""
    for _ in range(2):  # what is done only once is done
        before()
        use()
        first = wrong()
    before()
    found: dict[str, str] = {"nothing": first} if first else {}
    places, _ = interrupting.run(use, at_returns=True)
    wrong()
    count = 0
    for place in places:
        if place[2] <= ROUNDS:
            said = _interrupt(place, before, use, wrong)
            count += said is not None
            if said:
                found[str(place)] = said
    return {
        "places": count,
        "returns": sum("returns" in each[0] for each in places),
        "wrong": found,
    }


def _interrupt(
    place: Place, before: Callable[[], object], use: Callable[[], object], wrong: Callable[[], str]
) -> str | None:
    """Say what is wrong after an interrupt at that place; None where it was not passed."""
    before()
    passed, error = interrupting.run(use, place, at_returns=True)
    was_there = passed[-1:] == [place]
    if was_there and not isinstance(error, (KeyboardInterrupt, RefusedError)):
        return f"the interrupt was lost: {error!r}"
    del error
    try:
        said = wrong()
    except Exception as failure:  # noqa: BLE001 (that is what is looked for)
        said = f"the next use: {type(failure).__name__}: {failure}"
    return said if was_there else None


# ---- sleep and wake


class RefusedError(RuntimeError):
    """A hook wants no sleep."""


def asleep() -> list[str]:
    """Ask the core what sleeps, in the order of the names."""
    return [NAMES[number - 2] for number, _, lake in lakes.of_regions() if lake.is_asleep]


def words() -> dict[str, list[str]]:
    """Return what the hooks heard of each region."""
    return {name: [word for word, of in told if of == name] for name in NAMES}


def hooks_complaint(sleeping: list[str], *, may_owe: bool) -> str:
    """Say which hook heard last what is not so, or the same twice.

    may_owe: word that a region woke may come with the next use.
    """
    for name, heard in words().items():
        if any(one == two for one, two in itertools.pairwise(heard)):
            return f"{name} heard {heard}"
        last = heard[-1] if heard else "woke"
        if name in sleeping and last != "sleeps":
            return f"{name} sleeps, and heard {heard}"
        if name not in sleeping and last != "woke" and not may_owe:
            return f"{name} is awake, and heard {heard}"
    return ""


def prepare_regions() -> None:
    """Make three regions, two of which save what they hold."""
    for name, backup in zip(NAMES, ("cpu", "cpu", None), strict=True):
        with gmlake.region(name, backup=backup):
            held[name] = torch.arange(300_000, dtype=torch.float32).cuda()
    gmlake.on_sleep(
        lambda name: told.append(("sleeps", name)), lambda name: told.append(("woke", name))
    )


def all_awake() -> None:
    """Wake what sleeps, and forget what was heard."""
    if asleep():
        gmlake.wake()
    told.clear()


def after_sleep_or_wake() -> str:
    """Say what is wrong, after the next use as well."""
    sleeping = asleep()
    if sleeping not in ([], list(NAMES)):
        return f"torn: {sleeping} sleep"
    said = hooks_complaint(sleeping, may_owe=True)
    gmlake.wake() if sleeping else gmlake.sleep()
    said = said or ("" if asleep() == [name for name in NAMES if not sleeping] else "it did not")
    said = said or hooks_complaint(asleep(), may_owe=False)
    if asleep():
        gmlake.wake()
    said = said or hooks_complaint([], may_owe=False)
    kept = [torch.equal(held[name].cpu(), torch.arange(300_000.0)) for name in NAMES[:2]]
    return said or ("" if all(kept) else "contents are lost")


def sleep() -> Case:
    """Put all to sleep."""
    prepare_regions()
    return all_awake, gmlake.sleep, after_sleep_or_wake


def wake() -> Case:
    """Wake all."""
    prepare_regions()

    def before() -> None:
        all_awake()
        gmlake.sleep()

    return before, lambda: gmlake.wake(keep_backup=False), after_sleep_or_wake


def refused_sleep() -> Case:
    """Put all to sleep, which a hook refuses."""
    prepare_regions()
    is_on = [False]

    def refuse(name: str) -> None:
        if is_on[0] and name == "c":
            raise RefusedError

    gmlake.on_sleep(refuse)

    def before() -> None:
        all_awake()
        is_on[0] = True

    def use() -> None:
        try:
            gmlake.sleep()
        except RefusedError:
            return

    def wrong() -> str:
        is_on[0] = False
        return after_sleep_or_wake()

    return before, use, wrong


# ---- elastic tensors

ROW: Final = 4 * MIB


def described() -> int:
    """Ask the core how much memory the tensor has."""
    memory = held["cache"]._memory  # noqa: SLF001
    return int(memory._lake.describe_elastic(memory.address)["memory_bytes"])  # noqa: SLF001


def resizing(start: int, to: int, use: Callable[[], object], expected: int) -> Case:
    """Return a use that comes from `start` rows and has memory for `expected` in the end."""
    held["cache"] = gmlake.elastic((400, ROW // 4), torch.float32)
    other = torch.cuda.Stream()
    waits = []
    plain = torch.cuda.Stream.wait_stream

    def noting(self: torch.cuda.Stream, stream: torch.cuda.Stream) -> None:
        waits.append(stream)
        plain(self, stream)

    torch.cuda.Stream.wait_stream = noting  # type: ignore[method-assign, assignment]

    def before() -> None:
        held["cache"].resize(0)
        with torch.cuda.stream(other):
            held["cache"].resize(start)
        waits.clear()

    def used() -> None:
        with torch.cuda.stream(other):
            use()

    def wrong() -> str:
        cache = held["cache"]
        rows, memory = cache.rows, described()
        if cache.memory_bytes != memory:
            return f"it says {cache.memory_bytes} bytes and has {memory}"
        if rows not in (start, to) or rows * ROW > memory or len(cache.tensor) != rows:
            return f"{rows} rows with {memory} bytes"
        used()
        rows, memory = cache.rows, described()
        if (rows, memory) != (to, expected * ROW) or cache.tensor.shape[0] != to:
            return f"after the next use {rows} rows with {memory} bytes"
        with torch.cuda.stream(other):
            cache.resize(rows)
        return "" if waits else "the stream did not wait for whom the memory served before"

    return before, used, wrong


def grow() -> Case:
    """Let rows come."""
    return resizing(10, 300, lambda: held["cache"].resize(300), 300)


def shrink() -> Case:
    """Let rows go."""
    return resizing(300, 10, lambda: held["cache"].resize(10), 10)


def reserve() -> Case:
    """Have memory ahead."""
    return resizing(10, 10, lambda: held["cache"].reserve(200), 200)


def fill() -> Case:
    """Take what is left: more than it may have."""
    return resizing(10, 400, lambda: held["cache"].fill(lambda rows: rows), 400)


def make_elastic() -> Case:
    """Make one and drop it."""
    torch.empty(1, device="cuda")
    lake = lakes.all_lakes()[0]
    first: list[int] = []

    def use() -> None:
        held["it"] = gmlake.elastic((400, ROW // 4), torch.float32, rows=3)
        held["it"].close()

    def wrong() -> str:
        held.pop("it", None)
        gc.collect()
        first[:] = first or [lake.stats()["live_bytes"]]
        return "" if [lake.stats()["live_bytes"]] == first else "its memory is not given back"

    return gc.collect, use, wrong


# ---- regions


def entering(make: Callable[[], Any]) -> Case:
    """Return a use of a region that a program holds on to."""

    def use() -> None:
        with make() as held["it"]:
            torch.empty(1, device="cuda")

    def wrong() -> str:
        if _core.torch_region() or _core.torch_has_entered():
            return f"still inside of {_core.torch_region()}"
        with make():
            is_inside = _core.torch_region() != 0
        return "" if is_inside and not _core.torch_region() else "the next use is not inside"

    return gc.collect, use, wrong


def region() -> Case:
    """Enter and leave a region."""
    return entering(lambda: gmlake.region("a", backup="cpu"))


def everywhere() -> Case:
    """Do it for all threads."""
    return entering(lambda: gmlake.region("a", everywhere=True))


def exportable() -> Case:
    """Do it without a name."""
    return entering(gmlake.exportable)


def main() -> None:
    """Print what was seen."""
    gmlake.enable()
    torch.empty(1, device="cuda")
    found = {
        one.__name__: one
        for one in (
            sleep,
            wake,
            refused_sleep,
            grow,
            shrink,
            reserve,
            fill,
            make_elastic,
            region,
            everywhere,
            exportable,
        )
    }
    print(json.dumps(sweep(*found[sys.argv[1]]())))


if __name__ == "__main__":
    main()
