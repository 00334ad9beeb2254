"""Plan files: plans of one process, the setup they were made for, and a checksum.

All numbers are little endian.

    offset  size  what
    0       8     magic "GMLPLANS"
    8       4     version, 1
    12      4     bytes of the header
    16      ...   the header, JSON in UTF-8: rank, world_size, devices, torch, gmlake, and for each
                  plan: device, kind, bytes, steps, requests, fingerprint
            ...   the plans one after another, each as Plan.encode() has it
    end     32    SHA-256 of everything before

A reader refuses any other version; a plan's own format has a version and a checksum besides, and
every plan passes the independent check when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gmlake import _core, owned
from gmlake.file_bytes import UnreadableError, contents
from gmlake.planner import _planner
from gmlake.planner.annex import PLAN_FILE
from gmlake.planner.plan_errors import PlanError
from gmlake.printable import printable

VERSION: Final = 1
MAX_FILE_BYTES: Final = 1 << 30
MAX_PLANS: Final = 1 << 12
MAX_HEADER_BYTES: Final = 1 << 22

_HEAD = struct.Struct("<8sII")
_CHECKSUM_BYTES = 32
_LARGEST_NUMBER = 1 << 31


@dataclass(frozen=True)
class SavedPlan:
    """A plan with the device and the kind of step that it serves."""

    device: int
    kind: str
    plan: _planner.Plan


@dataclass(frozen=True)
class MadeFor:
    """The process that plans were made in.

    devices: by ordinal, how each describes itself: its name, memory and chunk size.
    torch, gmlake: versions; "" if not known.
    """

    rank: int = 0
    world_size: int = 1
    devices: dict[int, str] = field(default_factory=dict)
    torch: str = ""
    gmlake: str = _core.__version__


@dataclass(frozen=True)
class PlanFile:
    """The contents of a plan file."""

    plans: tuple[SavedPlan, ...]
    made_for: MadeFor


# ---- writing


def save_plans(path: str | Path, plans: Iterable[SavedPlan], made_for: MadeFor) -> None:
    """Write a plan file, whole or not at all. Raises OSError, PlanError for too much to write.

    Follows links. A device or a pipe is written to.
    """
    data = encode_plans(plans, made_for)
    target = Path(os.path.realpath(path))  # Path.resolve() fails for a loop of links
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(data)
        return
    owned.write_path(target, data)


def encode_plans(plans: Iterable[SavedPlan], made_for: MadeFor) -> bytes:
    """Return the bytes of a plan file."""
    saved = list(plans)
    payloads = [entry.plan.encode() for entry in saved]
    header = json.dumps(
        {
            "rank": made_for.rank,
            "world_size": made_for.world_size,
            "devices": {str(device): text for device, text in made_for.devices.items()},
            "torch": made_for.torch,
            "gmlake": made_for.gmlake,
            "plans": [
                _row(entry, len(payload)) for entry, payload in zip(saved, payloads, strict=True)
            ],
        },
        ensure_ascii=True,
        separators=(",", ":"),
    ).encode()
    if len(saved) > MAX_PLANS or len(header) > MAX_HEADER_BYTES:
        raise PlanError(
            f"too much for a plan file: {len(saved)} plans, {len(header)} bytes about them"
        )
    data = b"".join([_HEAD.pack(PLAN_FILE, VERSION, len(header)), header, *payloads])
    return data + hashlib.sha256(data).digest()


def _row(entry: SavedPlan, payload_bytes: int) -> dict[str, Any]:
    told = entry.plan.describe()
    return {
        "device": entry.device,
        "kind": entry.kind,
        "bytes": payload_bytes,
        "steps": told["steps"],
        "requests": told["requests"],
        "fingerprint": f"{told['fingerprint']:016x}",
    }


# ---- reading


def load_plans(path: str | Path) -> PlanFile:
    """Read a plan file. Raises PlanError, with the file's name, for anything else."""
    try:
        return decode_plans(_contents(Path(path)))
    except PlanError as error:
        raise PlanError(f"{printable(str(path))}: {error}") from None
    except MemoryError:
        raise PlanError(
            f"{printable(str(path))}: needs more memory than this machine has"
        ) from None


def _contents(path: Path) -> bytes:
    try:
        return contents(path, MAX_FILE_BYTES)
    except UnreadableError as error:
        raise PlanError(str(error)) from None


def decode_plans(data: bytes) -> PlanFile:
    """Read the bytes of a plan file."""
    if not data.startswith(PLAN_FILE):
        raise PlanError("not a plan file of gmlake")
    if len(data) < _HEAD.size + _CHECKSUM_BYTES:
        raise PlanError("the plan file is cut off")
    _, version, header_bytes = _HEAD.unpack_from(data)
    if version != VERSION:
        raise PlanError(f"a plan file of version {version}; this gmlake reads version {VERSION}")
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise PlanError("the plan file is damaged or cut off: its checksum differs")
    if header_bytes > min(MAX_HEADER_BYTES, len(body) - _HEAD.size):
        raise PlanError("the plan file's header is longer than the file")
    first_plan = _HEAD.size + header_bytes
    header = _read_header(body[_HEAD.size : first_plan])
    made_for = _made_for(header)
    return PlanFile(_read_plans(header.get("plans"), body[first_plan:]), made_for)


def _read_header(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise PlanError("the plan file's header cannot be read")
    return header


def _made_for(header: dict[str, Any]) -> MadeFor:
    devices = header.get("devices")
    if not isinstance(devices, dict):
        raise PlanError("the plan file's header has no devices")
    found = {}
    for ordinal, text in devices.items():
        if not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 10):  # noqa: PLR2004
            raise PlanError("the plan file names a device that is no number")
        found[int(ordinal)] = _text(text, "description of a device")
    return MadeFor(
        rank=_number(header.get("rank"), "rank"),
        world_size=_number(header.get("world_size"), "world size"),
        devices=found,
        torch=_text(header.get("torch"), "version of PyTorch"),
        gmlake=_text(header.get("gmlake"), "version of gmlake"),
    )


def _read_plans(rows: object, data: bytes) -> tuple[SavedPlan, ...]:
    if not isinstance(rows, list) or len(rows) > MAX_PLANS:
        raise PlanError("the plan file's header has no list of plans, or too many")
    plans = []
    done = 0
    for row in rows:
        if not isinstance(row, dict):
            raise PlanError(
                "the plan file's header describes a plan by something else than an object"
            )
        length = _number(row.get("bytes"), "length of a plan")
        plan = _planner.Plan.decode(data[done : done + length])
        done += length
        device = _number(row.get("device"), "device of a plan")
        kind = _text(row.get("kind"), "kind of a plan")
        if row.get("fingerprint") != f"{plan.describe()['fingerprint']:016x}":
            raise PlanError(
                f"the plan of kind {kind[:60]!r} has another fingerprint than announced"
            )
        plans.append(SavedPlan(device, kind, plan))
    if done != len(data):
        raise PlanError("the plan file holds more or less than its plans")
    return tuple(plans)


def _number(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST_NUMBER:
        raise PlanError(f"the plan file has no proper {what}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise PlanError(f"the plan file has no proper {what}")
    return value
