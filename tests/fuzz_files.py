"""Files for tests/fuzz.py: valid ones of every kind that a command reads, then changed.

What is changed is what a file says: its lists, values, tables, sections and instructions. What a
format computes from them, such as lengths and checksums, is mostly made to agree again, since a
stranger would do so. Everything follows from a random.Random.
"""

from __future__ import annotations

import copy
import json
import pickle
import pickletools
import random
import struct
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from test_hostile_files import SCRIPT, of_lake, usual

import gmlake
from gmlake.lake import Block
from gmlake.trace import Trace, binary
from plans import training
from recording import (
    BASE,
    MIB,
    ExpandableNoter,
    Noter,
    alloc,
    block,
    event,
    free,
    segment,
    snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TRACES = sorted((Path(__file__).parents[1] / "examples" / "traces").glob("*.gmtrace"))
MOST_ITEMS = 200_000
"""Of one list: far from what takes long where work follows the file, not its square."""

LARGE = 20_000
"""Items of the larger files, for the same reason."""

NUMBERS = [
    *(0, 1, 2, 7, 255, 511, 512, 513, 1 << 20, (1 << 20) + 1, 2 << 20, 20 << 20, 1 << 31, 1 << 32),
    *((1 << 48) - 1, 1 << 48, (1 << 48) + 1, 1 << 53, (1 << 62) - 1, 1 << 62, (1 << 63) - 1),
    *(1 << 63, (1 << 64) - 2, (1 << 64) - 1, 1 << 64, 1 << 70, 10**40, -1, -2, -(1 << 31)),
    *(-(1 << 63), -(1 << 64), BASE, BASE + 512, BASE + 20 * MIB),
]
TEXTS = [
    *("", " ", "x", "\0", "\n", "a\nb", "\r", "\t", "\x1b[31mred", "\x9b2J", "\u202eabc", "\u2028"),
    *("\ud800", "\udfff\ud800", "\U0010ffff", "\ufeff", "é" * 300, "x" * 2000, "y" * 100_000),
    *(
        SCRIPT,
        "<b>&amp;",
        "'\"><svg onload=alert(1)>",
        "]]>",
        "{{7*7}}",
        "%s%n",
        "{0}",
        "[bold]x[/]",
    ),
    *("[/red]", "alloc", "free_completed", "free_requested", "segment_alloc", "segment_free"),
    *("segment_map", "segment_unmap", "oom", "snapshot", "inactive", "active_allocated", "small"),
    *("1", "-1", "1e9", "nan", "9" * 5000, "NaN", "null", "__class__", "constructor"),
]
OTHERS: list[Any] = [
    *(None, True, False, 0.0, -0.0, 1.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *([], {}, (), [[]], [None], {"": 0}, {"a": {"b": {"c": []}}}, [1, 2, 3, 4], [1 << 63] * 7),
    *((0, 0), (1, 2, 3), [[0] * 8] * 3, [0, "", "", []], "alloc", b"bytes".decode()),
]


@dataclass
class Case:
    """What one command is given. names: those of `data` that it may be told to read."""

    kind: str
    data: dict[str, bytes] = field(default_factory=dict)


# ---- values and trees of them


def value(rng: random.Random) -> Any:
    """Return something odd."""
    chosen = rng.random()
    if chosen < 0.4:
        return number(rng)
    if chosen < 0.7:
        return text(rng)
    return copy.deepcopy(rng.choice(OTHERS))


def number(rng: random.Random) -> int:
    """Return a number that is near some limit, or any."""
    if rng.random() < 0.1:
        return rng.getrandbits(rng.choice((8, 16, 32, 48, 64)))
    return rng.choice(NUMBERS) + rng.choice((0, 0, 0, 1, -1))


def text(rng: random.Random) -> str:
    """Return a text that somebody may have forgotten to escape, or two."""
    return rng.choice(TEXTS) + (rng.choice(TEXTS) if rng.random() < 0.1 else "")


def near(rng: random.Random, old: Any) -> Any:
    """Return a value of the same type, mostly close by."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        steps = (1, -1, 512, -512, 2 * MIB, -2 * MIB, old, -2 * old, 1 << 48)
        return old + rng.choice(steps) if rng.random() < 0.7 else number(rng)
    if isinstance(old, str):
        return text(rng) if rng.random() < 0.7 else old[::-1] + text(rng)
    if isinstance(old, tuple):
        return tuple(near(rng, part) for part in old)
    return value(rng)


def containers(root: Any) -> list[Any]:
    """Return every list and dict of a tree, each once."""
    found: dict[int, Any] = {}
    left = [root]
    while left:
        one = left.pop()
        if isinstance(one, (list, dict)) and id(one) not in found and len(found) < 5000:
            found[id(one)] = one
            left.extend(one.values() if isinstance(one, dict) else one[:2000])
    return list(found.values())


def some_container(rng: random.Random, root: Any) -> Any:
    """Return a container: any with the same chance, or one on a walk from the root."""
    if rng.random() < 0.5:
        return rng.choice(containers(root))
    while True:
        inner = list(root.values()) if isinstance(root, dict) else root[:2000]
        inner = [one for one in inner if isinstance(one, (list, dict))]
        if not inner or rng.random() < 0.2:
            return root
        root = rng.choice(inner)


def change_list(rng: random.Random, items: list[Any], root: Any) -> None:
    """Change a list in one way."""
    if not items:
        items.append(value(rng))
        return
    at, other = rng.randrange(len(items)), rng.randrange(len(items))
    begin, end = min(at, other), max(at, other) + 1
    many = rng.choice((2, 3, 10, 1000, MOST_ITEMS)) if rng.random() < 0.3 else 2
    ways: list[Callable[[], Any]] = [
        lambda: items.pop(at),
        lambda: items.__delitem__(slice(begin, end)),
        lambda: items.insert(other, items[at]),
        lambda: items.insert(other, copy.deepcopy(items[at])),
        lambda: items.__setitem__(at, items[other]),
        items.reverse,
        lambda: items.append(items.pop(at)),
        lambda: items.__setitem__(slice(begin, end), rng.sample(items[begin:end], end - begin)),
        lambda: items.extend(items * min(many, MOST_ITEMS // len(items))),
        lambda: items.__setitem__(slice(at, at), [items[at]] * min(many, MOST_ITEMS)),
        lambda: items.__setitem__(at, value(rng)),
        lambda: items.__setitem__(at, near(rng, items[at])),
        lambda: items.__setitem__(at, nested(rng, items[at])),
        lambda: items.__setitem__(at, some_container(rng, root)),
        lambda: items.extend(some_container(rng, root)),
        items.clear,
    ]
    rng.choice(ways)()


def change_dict(rng: random.Random, entry: dict[Any, Any], root: Any) -> None:
    """Change a dict in one way."""
    if not entry:
        entry[text(rng)] = value(rng)
        return
    keys = list(entry)
    key, other = rng.choice(keys), rng.choice(keys)
    ways: list[Callable[[], Any]] = [
        lambda: entry.pop(key),
        lambda: entry.update({key: value(rng)}),
        lambda: entry.update({key: near(rng, entry[key])}),
        lambda: entry.update({key: near(rng, entry[key])}),
        lambda: entry.update({key: near(rng, entry[key])}),
        lambda: entry.update({key: entry[other], other: entry[key]}),
        lambda: entry.update({text(rng): entry.pop(key)}),
        lambda: entry.update({text(rng): value(rng)}),
        lambda: entry.update({rng.choice((0, -1, 7, 1 << 20)): value(rng)}),
        lambda: entry.update({key: nested(rng, entry[key])}),
        lambda: entry.update({key: some_container(rng, root)}),
        lambda: entry.update({f"{key}{n}": value(rng) for n in range(rng.choice((3, 2000)))}),
    ]
    rng.choice(ways)()


def nested(rng: random.Random, inner: Any) -> Any:
    """Put a value into lists, deeply, or into lists that all are the same ones."""
    width, depth = rng.choice(((1, 1), (1, 40), (1, 200), (10, 12), (2, 60)))
    for _ in range(depth):
        inner = {"a": inner} if width == 1 and rng.random() < 0.1 else [inner] * width
    return inner


def change_tree(rng: random.Random, root: Any) -> Any:
    """Change a tree in a few places, in place; the new root."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        if rng.random() < 0.005 or not isinstance(root, (list, dict)):
            return rng.choice((value(rng), [root], {"segments": root}))
        one = some_container(rng, root)
        (change_list if isinstance(one, list) else change_dict)(rng, one, root)
    return root


# ---- snapshots


def program(rng: random.Random, policy: str) -> Any:
    """Return what a random program leaves, as PyTorch records it."""
    capacity = 160 * MIB
    with gmlake.Lake("sim", policy, capacity) as lake:
        noter = (Noter if policy == "caching" else ExpandableNoter)(lake, capacity)
        live: list[Block] = []
        for _ in range(rng.choice((3, 20, 60))):
            choice = rng.randrange(12)
            if choice < 3:
                noter.trim()
            elif live and choice < 7:
                noter.free(live.pop(rng.randrange(len(live))))
            else:
                size = rng.choice((1, 700, MIB, 3 * MIB, 11 * MIB, rng.randrange(1, 40 * MIB)))
                served = noter.try_to_allocate(size, rng.randrange(3))
                live += [served] if served else []
        return noter.snapshot()


@cache
def lake_document() -> Any:
    """What a snapshot of gmlake itself writes, with times that do not depend on the run."""
    document = of_lake()
    for number, entry in enumerate(document["device_traces"][0]):
        entry["time_us"] = number
    return document


def large(rng: random.Random) -> Any:
    """Return a snapshot that has very many of one thing."""
    count = rng.choice((LARGE, 3 * LARGE))
    several = rng.choice((1, 2, 900))
    frames = [
        [{"name": f"f{n}", "filename": "m.py", "line": n}] for n in range(rng.choice((1, count)))
    ]
    events = [
        act(BASE + n % several * MIB, 512 + n % 7, frames=frames[n % len(frames)], time_us=n)
        for n in range(count)
        for act in (alloc, free)
    ]
    actions = rng.sample(("segment_map", "segment_unmap", "segment_alloc", "segment_free"), 2)
    parts = [BASE + n * 2 * MIB for n in range(count)]
    ways: list[Callable[[], Any]] = [
        lambda: snapshot(events),
        lambda: snapshot([alloc(BASE + n * 4096, rng.choice((1, 4096))) for n in range(count)]),
        lambda: snapshot(
            [
                event(rng.choice(actions), BASE + rng.randrange(several * 4) * MIB, 2 * MIB)
                for _ in range(count)
            ]
        ),
        lambda: snapshot(
            events[:9],
            [
                segment(
                    BASE,
                    count * 4096,
                    [block(BASE + n * 4096, 4096, rng.choice((None, 1))) for n in range(count)],
                )
            ],
        ),
        lambda: snapshot(
            [], [segment(at, 2 * MIB, [block(at, 2 * MIB, 5)], stream=at % several) for at in parts]
        ),
        lambda: {"segments": [], "device_traces": [events[:2]] * count},
        lambda: {
            "segments": [segment(BASE, 0, [], device=n % 900) for n in range(count)],
            "device_traces": [events[:2]] * 900,
        },
        lambda: snapshot([{**one, "frames": [frames[0][0]] * 60} for one in events]),
        lambda: {
            **snapshot(events),
            "external_annotations": [
                {"stage": "END", "name": f"ProfilerStep#{n}", "device": 0, "time_us": n * 7 % count}
                for n in range(count)
            ],
        },
    ]
    return rng.choice(ways)()


def rearranged(rng: random.Random, document: Any) -> None:
    """Change events all at once: their order, times, streams, addresses or sizes."""
    traces = document.get("device_traces") if isinstance(document, dict) else None
    events = traces[0] if isinstance(traces, list) and traces else None
    if not isinstance(events, list) or not events or not isinstance(events[0], dict):
        return
    key = rng.choice(("time_us", "stream", "addr", "size", "action", ""))
    if not key:
        begin = rng.randrange(len(events))
        part = events[begin : begin + rng.choice((2, 5, 100))]
        events[begin : begin + len(part)] = rng.sample(part, len(part))
        return
    seen = [one[key] for one in events if isinstance(one, dict) and key in one]
    fixed = rng.choice((*seen, *NUMBERS)) if key != "action" else text(rng)
    for entry in events:
        if isinstance(entry, dict) and rng.random() < 0.5:
            near_by = rng.choice((0, 512, 4096, MIB))
            entry[key] = fixed if isinstance(fixed, str) else fixed + near_by * rng.randrange(4)


def torch_snapshot(rng: random.Random) -> Case:
    """Make a snapshot of PyTorch."""
    chosen = rng.random()
    if chosen < 0.4:
        document: Any = usual()
    elif chosen < 0.97:
        document = program(rng, rng.choice(("caching", "caching", "expandable")))
    else:
        document = large(rng)
    document = copy.deepcopy(document)
    if rng.random() < 0.25:
        rearranged(rng, document)
    if rng.random() < 0.9:
        document = change_tree(rng, document)
    data = packed(rng, document)
    name = "x.json" if data[:1] in (b"{", b"[") and rng.random() < 0.8 else "x.pickle"
    return Case("snapshot", {name: data})


def lake_snapshot(rng: random.Random) -> Case:
    """Make a snapshot of gmlake itself."""
    document = copy.deepcopy(lake_document())
    if rng.random() < 0.2:
        rearranged(rng, document)
    device = document["gmlake"]["devices"][0]
    if rng.random() < 0.03:
        repeat_shared(rng, document)
    for name in ("views", "pieces"):
        rows = device[name]
        if rows and rng.random() < 0.3:
            rows[rng.randrange(len(rows))][rng.randrange(len(rows[0]))] = number(rng)
    if rng.random() < 0.8:
        document = change_tree(rng, document)
    return Case("own snapshot", {"x.pickle": packed(rng, document)})


def repeat_shared(rng: random.Random, document: Any) -> None:
    """Let lists hold the same list very often: a pickle names one at two bytes each."""
    device = document["gmlake"]["devices"][0]
    name = rng.choice(("views", "pieces", "stream_pairs"))
    if device[name]:
        device[name] = [rng.choice(device[name])] * LARGE
    events = document["device_traces"]
    events[0] = events[0][:2] * rng.choice((1, LARGE))
    several = rng.choice((events, document["gmlake"]["devices"], document["segments"]))
    several[:] = [several[0] if several else events[0]] * rng.choice((9, 2000, 10 * LARGE))


def packed(rng: random.Random, document: Any) -> bytes:
    """Return a tree as JSON or as a pickle; what neither can hold is a pickle of something else."""
    try:
        if rng.random() < 0.4:
            return as_json(rng, document)
        return pickle.dumps(document, rng.choice((0, 1, 2, 3, 4, 4, 4, 5)))
    except (RecursionError, ValueError):
        return pickle.dumps([], 4)


def as_json(rng: random.Random, document: Any) -> bytes:
    """Return JSON; that of lists which share would have no end, so the start of it."""
    if shared_size(document) > 3_000_000:
        document = value(rng)
    plain = rng.random() < 0.8
    try:
        return json.dumps(document, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        return b'{"segments": [' + b"[" * rng.choice((10, 5000))


def shared_size(root: Any) -> float:
    """Return how many parts a tree has where what is shared is written out."""
    sizes: dict[int, float] = {}

    def size(one: Any, depth: int) -> float:
        if isinstance(one, str):
            return 1 + len(one) / 20
        if not isinstance(one, (list, dict, tuple)):
            return 1
        if depth > 400:
            return 1e12
        if id(one) not in sizes:
            sizes[id(one)] = 1e12  # where it is within itself
            inner = one.values() if isinstance(one, dict) else one
            sizes[id(one)] = 1 + sum(size(part, depth + 1) for part in inner)
        return sizes[id(one)]

    return size(root, 0)


# ---- the instructions of pickles

_PIECES = [
    *(bytes([code]) for code in b"(]ae}sut).Nl2d01RbocPQi" + bytes(range(0x80, 0x97))),
    *(b"K\x01", b"h\x00", b"h\x05", b"q\x00", b"q\xff", b"\x8c\x01a", b"M\xff\xff", b"J\0\0\0\x80"),
    *(b"\x8a\x03\x01\x02\xff", b"\x8a\x10" + b"\xff" * 16, b"X\x01\0\0\0b", b"G" + b"\x7f" * 8),
    *(b"](", b"}(", b"K\x01e", b"\x8c\x01ku", b"j\x01\0\0\0", b"r\xff\xff\xff\xff", b"\x94\x94"),
    *(b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"I01\n", b"L" + b"9" * 50 + b"L\n"),
    *(b"F1e999\n", b"Fnan\n", b"V\\ud800\n", b"g0\n", b"p7\n", b"X\xff\xff\xff\x7f", b"\x8b\xff"),
]


def instructions(rng: random.Random) -> Case:
    """Make a pickle, and change the instructions that it consists of."""
    document = usual() if rng.random() < 0.7 else lake_document()
    data = pickle.dumps(document, rng.choice((2, 3)))  # later protocols count bytes
    starts = [place for _, _, place in pickletools.genops(data) if place is not None]
    pieces = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(rng.choice((1, 1, 2, 4, 10))):
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        chosen = rng.randrange(7)
        if chosen == 0:
            del pieces[at]
        elif chosen == 1:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif chosen == 2:
            pieces[at:at] = [pieces[other]] * rng.choice((1, 1, 2, 1000))
        elif chosen == 3:
            pieces[at] = rng.choice(_PIECES)
        elif chosen == 4:
            pieces[at:at] = pieces[min(at, other) : max(at, other)]
        elif chosen == 5:
            pieces[at:at] = [b"]" * (deep := rng.choice((10, 1000, 60_000))), b"a" * (deep - 1)]
        else:
            pieces[at:at] = [rng.choice(_PIECES) for _ in range(rng.choice((1, 2, 5)))]
    return Case("instructions", {"x.pickle": b"".join(pieces)})


# ---- gmlake's own traces

_TABLES = binary._TABLES  # noqa: SLF001 (no other way to write it)


@cache
def known_traces() -> list[Trace]:
    """Return the traces to begin with."""
    chance = random.Random(1)
    recorded = [program(chance, policy) for policy in ("caching", "caching", "expandable")]
    sources = (usual(), *recorded, *TRACES)
    found = [gmlake.load(one).devices[0].trace for one in sources]
    return [*found, training(3).trace(), training(300).trace()]


def change_table(rng: random.Random, table: Any) -> Any:
    """Change rows or cells of a table."""
    if not len(table):
        return np.zeros(rng.choice((1, 1, 5, 1000)), table.dtype)
    at, other = rng.randrange(len(table)), rng.randrange(len(table))
    begin, end = min(at, other), max(at, other) + 1
    column = rng.choice(table.dtype.names) if table.dtype.names else None
    part = table[column] if column else table
    chosen = rng.randrange(9)
    if chosen == 0:
        return np.delete(table, at)
    if chosen == 1:
        return np.delete(table, slice(begin, end))
    if chosen == 2:
        return np.insert(table, other, table[at])
    if chosen == 3:
        return np.concatenate([table] * min(rng.choice((2, 11)), 1 + MOST_ITEMS // len(table)))
    if chosen == 4:
        table[[at, other]] = table[[other, at]]
    elif chosen == 5:
        part[at] = part[other]
    elif chosen == 6:
        part[begin:end] = part[begin:end][::-1].copy()
    elif chosen == 7:
        part[begin:end] = cell(rng, part.dtype)
    else:
        part[at] = cell(rng, part.dtype, int(part[at]))
    return table


def cell(rng: random.Random, dtype: Any, old: int | None = None) -> Any:
    """Return a number for a column: any, or sometimes one near the old one."""
    chosen = number(rng) if old is None or rng.random() < 0.5 else near(rng, old)
    return chosen % (2 if dtype.kind == "b" else 1 << (8 * dtype.itemsize))


def own_trace(rng: random.Random) -> Case:
    """Make a trace in gmlake's own format, with checksums that are right."""
    trace = rng.choice(known_traces()[:5] if rng.random() < 0.8 else known_traces())
    tables = {key: getattr(trace, name).copy() for _, key, name, _, _ in _TABLES}
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(("requests", *tables))
        tables[name] = change_table(rng, tables[name])
    meta: Any = {
        "device": trace.device,
        "settings": copy.deepcopy(trace.settings),
        "labels": list(trace.labels),
        "is_expandable": trace.is_expandable,
        "rows": {name: len(table) for name, table in tables.items()},
    }
    if rng.random() < 0.4:
        meta = change_tree(rng, meta)
    said = as_json(rng, meta)
    sections = [[b"META", said, len(said)]]
    for tag, name, _, _, columns in _TABLES:
        for column, key in enumerate(columns):
            if len(tables[name]):
                raw = binary._shuffle(tables[name][key])  # noqa: SLF001 (no other way to write it)
                sections.append([tag + bytes([column]), raw, len(tables[name])])
    if rng.random() < 0.2:
        change_sections(rng, sections)
    body = b"".join(stored_section(rng, *section) for section in sections)
    count = len(sections) if rng.random() < 0.97 else number(rng) % (1 << 32)
    version = 1 if rng.random() < 0.98 else number(rng) % (1 << 32)
    body = struct.pack("<8sII", b"GMLTRACE", version, count) + body
    end = struct.pack("<4sII", b"GEND", zlib.crc32(body), len(body) & 0xFFFFFFFF)
    return Case("own trace", {"x.gmtrace": body + end})


def change_sections(rng: random.Random, sections: list[list[Any]]) -> None:
    """Change which sections there are, what they are called, and how long they say they are."""
    at, other = rng.randrange(len(sections)), rng.randrange(len(sections))
    chosen = rng.randrange(5)
    if chosen == 0:
        del sections[at]
    elif chosen == 1:
        sections.insert(other, sections[at])
    elif chosen == 2:
        sections[at][0], sections[other][0] = sections[other][0], sections[at][0]
    elif chosen == 3:
        sections[at][1] = sections[at][1][: rng.randrange(len(sections[at][1]) + 1)] * 2
    else:
        sections[at][2] = number(rng) % (1 << 64)


def stored_section(rng: random.Random, name: bytes, raw: bytes, items: int) -> bytes:
    stored = zlib.compress(raw, 1)
    if rng.random() < 0.01:
        stored = change_bytes(rng, stored)
    return struct.pack("<4sIQQ", name, zlib.crc32(stored), items, len(stored)) + stored


# ---- any of them


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Change bytes of whatever it is."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        at, other = rng.randrange(len(changed) + 1), rng.randrange(len(changed) + 1)
        chosen = rng.randrange(6)
        if chosen == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif chosen == 1 and at < len(changed):
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif chosen == 2:
            changed[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif chosen == 3:
            del changed[at : at + rng.choice((1, 2, 8, 100))]
        elif chosen == 4:
            changed[at:at] = changed[other : other + rng.choice((1, 8, 64, 1000))]
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


KINDS: list[tuple[Callable[[random.Random], Case], int]] = [
    (torch_snapshot, 30),
    (lake_snapshot, 15),
    (instructions, 8),
    (own_trace, 18),
]
"""What makes files, and how often; annexes add theirs."""


def prepare() -> None:
    """Make what all files begin with once, before there are many processes."""
    for make_first in (lake_document, known_traces):
        make_first()


def make(rng: random.Random) -> Case:
    """Make a file, and sometimes change its bytes afterwards."""
    ways, weights = zip(*KINDS, strict=True)
    case: Case = rng.choices(ways, weights)[0](rng)
    if rng.random() < 0.05:
        name = rng.choice(list(case.data))
        case.data[name] = change_bytes(rng, case.data[name])
    return case
