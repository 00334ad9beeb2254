"""The kinds of programs: how their processes are set, and which steps they have how often."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.standin.differential.programs import GIB, MIB, Program, Setting
from tests.standin.differential.steps import BASIC, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ELASTIC = {
    "make_elastic": 2, "resize_rows": 4, "fill": 2, "write_rows": 1, "read_rows": 3,
    "close_elastic": 0.5, "sleep_elastic": 1.5,
}  # fmt: skip


def _pick_setting(rng: random.Random, devices: int = 1, **options: Any) -> Setting:
    if options:
        return Setting("", 8 * GIB if "neighbour" in options else 2 * GIB, **options)
    if devices > 1:
        return Setting("", 2 * GIB, devices)
    if rng.random() < 0.25:
        return Setting("expandable_segments:True", 2 * GIB)
    return Setting("", rng.choice([256 * MIB, 8 * GIB]))


def _begin(program: Program, rng: random.Random, *, enabled: bool = True) -> Steps:
    steps = Steps(program, rng)
    if enabled:
        steps.enable()
    steps.add("pace", word=rng.choice(["manual", "manual", "lag"]), lag=rng.choice([4, 32]))
    for _ in range(rng.randint(1, 4)):
        steps.make_stream()
    return steps


def streams(program: Program, rng: random.Random) -> None:
    """Tensors on several streams, each used on others, freed in each way."""
    steps = _begin(program, rng)
    steps.take(BASIC | {"offload": rng.choice([0, 2, 6])}, rng.randint(20, 70))
    steps.finish()


def pressure(program: Program, rng: random.Random) -> None:
    """The same where the device is nearly full."""
    steps = _begin(program, rng)
    steps.fullest = rng.choice([0.9, 0.98, 1.0])
    steps.take(BASIC | {"offload": 2, "alloc": 14, "alloc_rest": 2}, rng.randint(20, 60))
    steps.finish()


def storages(program: Program, rng: random.Random) -> None:
    """Storages from before gmlake.enable(), that are emptied and filled, and memory fractions."""
    steps = _begin(program, rng, enabled=False)
    steps.fullest = rng.choice([0.5, 0.9, 0.98, 1.0])
    mix = BASIC | {
        "empty_storage": 4, "refill_storage": 4, "alloc_rest": 0.5, "squeeze": 3,
        "limit": rng.choice([0, 1]), "switch": rng.choice([0, 0, 0.5]),
    }  # fmt: skip
    steps.take(mix, rng.randint(5, 25))
    steps.take({"empty_storage": 1}, rng.randint(0, 3))
    steps.enable()
    steps.take(mix, rng.randint(15, 40))
    steps.finish()


def devices(program: Program, rng: random.Random) -> None:
    """Two devices: copies between them, streams of the other, refusals on one."""
    early = rng.random() < 0.5
    steps = _begin(program, rng, enabled=early)
    steps.fullest = rng.choice([0.6, 0.98])
    mix = BASIC | {"alloc_rest": 3, "copy": 6, "limit": 0.3}
    steps.take(mix, rng.randint(5, 25))
    if not early:
        steps.enable()
    steps.take(mix, rng.randint(10, 30))
    steps.finish()


def graphs(program: Program, rng: random.Random) -> None:
    """Captures in this thread and a second one, replays, gmlake turned on and off."""
    steps = _begin(program, rng, enabled=rng.random() < 0.6)
    steps.fullest = 0.4
    mix = BASIC | {
        "capture": 2, "capture_elsewhere": 1.5, "replay": 6, "drop_graph": 0.5,
        "look_at_pools": 1, "switch": rng.choice([0, 0.5]),
    }  # fmt: skip
    steps.take(mix, rng.randint(20, 50))
    steps.finish()


def pools(program: Program, rng: random.Random) -> None:
    """MemPools, gmlake turned on and off."""
    steps = _begin(program, rng, enabled=rng.random() < 0.6)
    steps.fullest = 0.6
    mix = BASIC | {
        "make_pool": 1, "alloc_in_pool": 3, "in_pool": 4, "drop_pool": 1,
        "look_at_pools": 1, "switch": rng.choice([0, 0.5]),
    }  # fmt: skip
    steps.make_pool()
    steps.take(mix, rng.randint(20, 50))
    steps.finish()


def history(program: Program, rng: random.Random) -> None:
    """What PyTorch's history of memory tells, also of regions and pools."""
    steps = _begin(program, rng, enabled=rng.random() < 0.7)
    mix = BASIC | {
        "record": 1, "look": 2, "empty_cache": 1, "empty_storage": 0.5, "refill_storage": 1,
        "make_pool": 0.3, "alloc_in_pool": 1, "drop_pool": 0.3,
    }  # fmt: skip
    steps.take(mix, rng.randint(5, 20))
    if not steps.enabled:
        steps.enable()
    if not steps.recording:
        steps.record()
    regions = {"alloc_in_region": 2, "sleep_and_wake": 0.5} if rng.random() < 0.5 else {}
    steps.take(mix | regions, rng.randint(15, 40))
    steps.look()
    steps.finish()


def regions(program: Program, rng: random.Random) -> None:
    """Regions that sleep and wake beside other work."""
    steps = _begin(program, rng)
    steps.fullest = 0.5
    steps.take(BASIC | {"alloc_in_region": 5, "sleep_and_wake": 4}, rng.randint(15, 40))
    steps.finish()


def elastic(program: Program, rng: random.Random) -> None:
    """Elastic tensors that grow, shrink, give way and sleep beside other work."""
    steps = _begin(program, rng)
    steps.fullest = 0.5
    steps.make_elastic()
    steps.take(BASIC | ELASTIC | {"both": rng.choice([0, 2])}, rng.randint(15, 40))
    steps.take({"read_rows": 1}, 3)
    steps.finish()


def neighbours(program: Program, rng: random.Random) -> None:
    """Two processes that share a device and give each other what is idle."""
    steps = _begin(program, rng)
    steps.add("enable", "n")
    steps.add("elastic", "n", cache=0, stream=0, region=None, backup=None)
    steps.add("pace", "n", word="eager", lag=1)
    steps.fullest = 0.5
    steps.sizes = [rng.choice([64, 200, 512, 1000, 2000]) * MIB for _ in range(3)]
    if rng.random() < 0.5:
        steps.record()
    light = {"alloc": 4, "write": 2, "read": 2, "free": 4, "look": 1, "empty_cache": 0.5}
    mix = light | ELASTIC | {
        "neighbour_takes": 5, "neighbour_reads": 2, "neighbour_drops": 4, "neighbour_grows": 2,
        "hand_over": 3,
    }  # fmt: skip
    steps.take(mix, rng.randint(15, 40))
    steps.look()
    steps.neighbour_reads()
    steps.take({"read_rows": 1}, 3)
    steps.finish()


KINDS: dict[str, tuple[float, Callable[[Program, random.Random], None], dict[str, Any]]] = {
    "streams": (30, streams, {}),
    "pressure": (14, pressure, {}),
    "storages": (14, storages, {}),
    "devices": (8, devices, {"devices": 2}),
    "graphs": (12, graphs, {}),
    "pools": (8, pools, {}),
    "history": (10, history, {}),
    "regions": (4, regions, {}),
    "elastic": (5, elastic, {"own": True}),
    "neighbours": (3, neighbours, {"own": True, "neighbour": True}),
}


def kind_of(seed: int) -> str:
    """Return the kind of the program of a seed."""
    rng = random.Random(f"kind {seed}")  # noqa: S311 (the same each time)
    return rng.choices(list(KINDS), [weight for weight, *_ in KINDS.values()])[0]


def draw(seed: int) -> Program:
    """Return the program of a seed."""
    kind = kind_of(seed)
    _, build, options = KINDS[kind]
    rng = random.Random(f"program {seed}")  # noqa: S311
    program = Program(seed, kind, _pick_setting(rng, **options))
    build(program, rng)
    return program


def choose(first: int, count: int, kinds: list[str]) -> Iterator[int]:
    """Yield so many seeds of these kinds."""
    seed = first
    while count:
        if kind_of(seed) in kinds:
            yield seed
            count -= 1
        seed += 1
