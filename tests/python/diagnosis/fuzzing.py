"""Traces of objects for tests/fuzz.py, and the command that reads them."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import fuzz_files
import numpy as np

from gmlake.diagnosis import Part, TraceBuilder

if TYPE_CHECKING:
    import random


@cache
def known_objects(count: int = 20) -> dict[str, bytes]:
    """Return the members of a file."""
    builder = TraceBuilder("two layers")
    path = ("forward  model.py:12", "main  train.py:3")
    x = builder.exists(1 << 30, name="weights", element_bytes=2, frames=path, scope="layers.0")
    for turn in range(count):
        y = builder.alloc(512 << turn % 7, name=f"y {turn}", stream=turn % 2, frames=path[1:])
        z = builder.alloc(2 << 20, frames=path)
        part = Part(x, ((0, 4, 8, 100, 3), (4096, 512, 512, 1, 1)))
        builder.kernel("mm", reads=(part, z), writes=(y,), scope="layers.0")
        builder.free(y)
        if turn % 3:
            builder.free(z)
    builder.keep(x)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.gmobjects")
        builder.build().save(file)
        with zipfile.ZipFile(file) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def objects(rng: random.Random) -> fuzz_files.Case:
    """Make a trace of objects."""
    found: dict[str, bytes] = dict(known_objects(fuzz_files.LARGE if rng.random() < 0.02 else 20))
    names = [name for name in found if name.endswith(".npy")]
    for name in rng.sample(names, rng.choice((0, 1, 1, 2))):
        table = np.load(io.BytesIO(found[name])).copy()
        for _ in range(rng.choice((1, 1, 2, 4))):
            table = fuzz_files.change_table(rng, table)
        out = io.BytesIO()
        np.lib.format.write_array(out, table, version=(1, 0))
        found[name] = out.getvalue()
    if rng.random() < 0.4:
        meta = fuzz_files.change_tree(rng, json.loads(found["gmobjects.json"]))
        found["gmobjects.json"] = fuzz_files.as_json(rng, meta)
    if rng.random() < 0.1:
        name = rng.choice(list(found))
        found[name] = fuzz_files.change_bytes(rng, found[name])
    if rng.random() < 0.05:
        del found[rng.choice(list(found))]
    twice = rng.choice(list(found)) if rng.random() < 0.05 else ""
    packing = rng.choice((0, 8, 8, 8, 8, 12, 14))
    return fuzz_files.Case("objects", {"x.gmobjects": packed_objects(found, packing, twice)})


def packed_objects(found: dict[str, bytes], packing: int = 8, twice: str = "") -> bytes:
    """Return a zip of members, one of them perhaps twice."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the name that is there already
        for name, data in [*found.items(), *([(twice, b"x" * 1000)] if twice else [])]:
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=packing)
    return out.getvalue()


def _options(rng: random.Random) -> list[str]:
    words = ["--all"] if rng.random() < 0.3 else []
    if rng.random() < 0.3:
        words += ["-o", "page.html"]
    if rng.random() < 0.2:
        words += ["--pattern", rng.choice(("early allocation", "memory-leak"))]
    return words + (["--json"] if rng.random() < 0.4 else [])


def warm_up(folder: Path) -> list[list[str]]:
    """Make what all inputs begin with; return commands to run once."""
    known_objects(fuzz_files.LARGE)
    path = folder / "x.gmobjects"
    path.write_bytes(packed_objects(known_objects()))
    return [["diagnose", str(path), "-o", str(folder / "page.html")]]


KINDS = [(objects, 11)]
READERS = {"objects": ("diagnose",)}
OPTIONS = {"diagnose": _options}
