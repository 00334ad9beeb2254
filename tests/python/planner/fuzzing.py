"""Plans for tests/fuzz.py, and the command that reads them."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fuzz_files

import gmlake
from gmlake.planner import MadeFor, Plan, SavedPlan, plan_files
from made_plans import made_plan
from plans import training

if TYPE_CHECKING:
    import random


@cache
def known_plans() -> list[bytes]:
    """Return plans as they are in files: a small one, and one of a step of training."""
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder, "x.gmtrace"), Path(folder, "plans")
        training(6).trace().save(source)
        report = gmlake.plan(source, budget_ms=20)
        assert report.results[0].step is not None
        plan_files.save_plans(path, [SavedPlan(0, "train", report.results[0].step.plan)], MadeFor())
        large = plan_files.load_plans(path).plans[0].plan.encode()
    return [made_plan().encode(), large]


def resealed_plan(payload: bytes) -> bytes:
    """Give a plan's bytes a checksum that is right."""
    checksum = 0xCBF29CE484222325
    for octet in payload[24:]:
        checksum = (checksum ^ octet) * 0x100000001B3 % (1 << 64)
    return payload[:16] + struct.pack("<Q", checksum) + payload[24:]


def plan_file(rng: random.Random) -> fuzz_files.Case:
    """Make a plan file."""
    chosen = [rng.choice(known_plans()) for _ in range(rng.choice((0, 1, 1, 2)))]
    saved = [SavedPlan(n, "train", Plan.decode(data)) for n, data in enumerate(chosen)]
    data = plan_files.encode_plans(
        saved, MadeFor(1, 2, {0: "H100", 1: fuzz_files.text(rng)}, "2.9.0")
    )
    header_bytes = struct.unpack_from("<I", data, 12)[0]
    header: Any = json.loads(data[16 : 16 + header_bytes])
    payloads = list(chosen)
    for at, payload in enumerate(payloads):
        if rng.random() < 0.6:
            changed = fuzz_files.change_bytes(rng, payload[24:])
            payloads[at] = resealed_plan(payload[:24] + changed)
            header["plans"][at]["bytes"] = len(payloads[at])
    if rng.random() < 0.5:
        header = fuzz_files.change_tree(rng, header)
    said = fuzz_files.as_json(rng, header)
    length = len(said) if rng.random() < 0.97 else fuzz_files.number(rng) % (1 << 32)
    body = data[:12] + struct.pack("<I", length) + said + b"".join(payloads)
    return fuzz_files.Case("plans", {"plans": body + hashlib.sha256(body).digest()})


def _options(rng: random.Random) -> list[str]:
    words = ["--budget-ms", rng.choice(("1", "5", "20", "100"))]
    if rng.random() < 0.2:
        words += ["--capacity", rng.choice(("1", "20MiB", "80GiB"))]
    if rng.random() < 0.2:
        words += ["-o", "out"]
    return words + (["--json"] if rng.random() < 0.4 else [])


def warm_up(_folder: Path) -> list[list[str]]:
    """Make what all inputs begin with; return commands to run once."""
    known_plans()
    return [["plan", str(fuzz_files.TRACES[0]), "--budget-ms", "1"]]


KINDS = [(plan_file, 9)]
READERS = {
    "snapshot": ("plan",),
    "own snapshot": ("plan",),
    "instructions": ("plan",),
    "own trace": ("plan",),
    "plans": ("view", "view", "view", "plan"),
}
OPTIONS = {"plan": _options}
