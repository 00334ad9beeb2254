"""Which lines of a program hold memory at one moment of PyTorch's history."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gmlake.jobs.summary import MOST_LINES, MOST_TEXT, Line
from gmlake.snapshots.frames import named_frame
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.queries import row_of
from gmlake.snapshots.sites import Site
from gmlake.snapshots.whole import load
from gmlake.trace.layout import Kind


class Holders(NamedTuple):
    """The lines that hold most; frame: of the last refusal, "" if there is none."""

    live_bytes: int
    lines: tuple[Line, ...]
    frame: str


def holders_of(document: dict[str, Any], device: int, moment: str) -> Holders:
    """Return what a snapshot of PyTorch says of a device; moment: "peak" or "refusal".

    Raises TraceError for a snapshot that contradicts itself.
    """
    found = load(document)
    sites = found.sites
    seen = next((one for one in found if one.device == device), None)
    if seen is None:
        return Holders(0, (), "")
    is_refusal = moment == "refusal" and len(seen.refusals) > 0
    row = row_of(seen, "refusal" if is_refusal else "peak")
    ids = seen.lives.live_behind(row)
    frame = _frame(sites, _last_refused(seen)) if is_refusal else ""
    lives = seen.lives
    held: dict[str, list[int]] = {}
    for number, size in zip(lives.site[ids].tolist(), lives.size_bytes[ids].tolist(), strict=True):
        known = held.setdefault(_frame(sites, number), [0, 0])
        known[0] += size
        known[1] += 1
    ordered = sorted(held.items(), key=lambda item: -item[1][0])
    lines = [Line(name[:MOST_TEXT], size, count) for name, (size, count) in ordered]
    return Holders(int(lives.size_bytes[ids].sum()), tuple(lines[:MOST_LINES]), frame)


def _last_refused(seen: DeviceSnapshot) -> int:
    row = int(np.flatnonzero(seen.events["kind"] == Kind.OOM)[-1])
    return int(seen.event_sites[row])


def _frame(sites: dict[int, Site], number: int) -> str:
    return named_frame(sites.get(number, Site()).frames)
