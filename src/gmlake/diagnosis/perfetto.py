"""A diagnosis as a trace for ui.perfetto.dev and chrome://tracing.

One microsecond stands for one unit of the trace: a call, or a level of calls that may run at
once. A thread for each stream shows its calls, one for each object at the peaks its life and its
waste, a counter the live bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.diagnosis.pages import ends_of, live_bytes
from gmlake.diagnosis.pictures.calls_picture import CALL_KINDS

if TYPE_CHECKING:
    from gmlake.diagnosis.detect import Diagnosis

    Entry = dict[str, Any]

MOST_OBJECTS: Final = 100_000
"""Objects drawn, the largest of those at the peaks; a trace says how many it left out."""

_CALLS, _OBJECTS = 1, 2


def save_diagnosis_perfetto(diagnosis: Diagnosis, path: str | Path) -> None:
    """Write the trace. Raises OSError."""
    at_peaks = np.flatnonzero(diagnosis.lives["peaks"])
    sizes = diagnosis.trace.objects["size_bytes"][at_peaks].astype(np.int64)
    chosen = at_peaks[np.argsort(-sizes, kind="stable")[:MOST_OBJECTS]].tolist()
    entries = [
        *_processes(),
        *_call_entries(diagnosis),
        *_object_entries(diagnosis, chosen),
        *_finding_entries(diagnosis, set(chosen)),
    ]
    document = {
        "traceEvents": entries,
        "displayTimeUnit": "ns",
        "otherData": {"objects at the peaks left out": str(len(at_peaks) - len(chosen))},
    }
    Path(path).write_text(json.dumps(document, separators=(",", ":")), encoding="ascii")


def _processes() -> Iterator[Entry]:
    for number, name in ((_CALLS, "calls"), (_OBJECTS, "objects at the peaks")):
        yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}


def _call_entries(diagnosis: Diagnosis) -> Iterator[Entry]:
    trace = diagnosis.trace
    times = diagnosis.times.tolist()
    streams, lane = np.unique(trace.apis["stream"], return_inverse=True)
    for number, stream in enumerate(streams.tolist()):
        name = {"name": f"stream {stream}"}
        yield {"ph": "M", "pid": _CALLS, "tid": number, "name": "thread_name", "args": name}
    live = live_bytes(diagnosis).tolist()
    kinds = trace.apis["kind"].tolist()
    for api, (thread, kind) in enumerate(zip(lane.tolist(), kinds, strict=True)):
        what = {"ph": "X", "pid": _CALLS, "tid": thread, "ts": times[api], "dur": 1}
        place = trace.place(api)
        args = {"call": api, "frames": "\n".join(place.frames), "scope": place.scope}
        yield {**what, "name": trace.label(api), "cat": CALL_KINDS[kind], "args": args}
        yield {
            "ph": "C",
            "pid": _CALLS,
            "name": "live bytes",
            "ts": times[api],
            "args": {"live": live[api]},
        }


def _object_entries(diagnosis: Diagnosis, chosen: list[int]) -> Iterator[Entry]:
    trace = diagnosis.trace
    for one in chosen:
        begin, end = ends_of(diagnosis, one)
        place = trace.object_place(one)
        name = trace.object_name(one)
        thread = {"ph": "M", "pid": _OBJECTS, "tid": one, "name": "thread_name"}
        yield {**thread, "args": {"name": name}}
        args = {"bytes": int(trace.objects["size_bytes"][one]), "frames": "\n".join(place.frames)}
        what = {"ph": "X", "pid": _OBJECTS, "tid": one, "name": name, "args": args}
        yield {**what, "ts": begin, "dur": end - begin}


def _finding_entries(diagnosis: Diagnosis, chosen: set[int]) -> Iterator[Entry]:
    for finding in diagnosis.findings:
        if finding.object not in chosen:
            continue
        begin, end = ends_of(diagnosis, finding.object)
        if finding.from_api is not None:
            begin = float(diagnosis.times[finding.from_api.api])
        if finding.to_api is not None:
            end = float(diagnosis.times[finding.to_api.api])
        args = {"change": finding.change, "saves bytes": finding.saving_bytes}
        what = {"ph": "X", "pid": _OBJECTS, "tid": finding.object, "cat": "finding", "args": args}
        yield {**what, "name": finding.pattern, "ts": begin, "dur": max(end - begin, 1.0)}
