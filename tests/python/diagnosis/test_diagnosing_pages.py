"""A diagnosis as figures of a page, and as a trace for Perfetto."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.diagnosis import Part, TraceBuilder
from gmlake.diagnosis.pages import MOST_CALLS, MOST_OBJECTS, report_of_diagnosis
from gmlake.diagnosis.perfetto import save_diagnosis_perfetto
from gmlake.diagnosis.pictures.calls_picture import CALL_KINDS, Calls
from gmlake.diagnosis.pictures.found_table import Found
from gmlake.diagnosis.pictures.lifelines import Lifelines
from gmlake.diagnosis.pictures.touched import Touched
from gmlake.pictures import render_page
from gmlake.pictures.figures import Timeline

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.diagnosis import Diagnosis
    from gmlake.pictures.figures import Report

KIB = 1024
HOSTILE = "</script><img src=x onerror='attacked = 1'>"


def small(ending: str = "") -> Diagnosis:
    builder = TraceBuilder(f"small{ending}")
    early = builder.alloc(64 * KIB, name=f"early{ending}", frames=(f"main{ending}  app.py:1",))
    late = builder.alloc(32 * KIB, name="late")
    builder.copy("fill", writes=[late])
    builder.kernel(f"work{ending}", reads=[late], writes=[early], frames=("step  app.py:7",))
    other = builder.alloc(16 * KIB, name="other", stream=5)
    builder.set("zero", writes=[Part(other, ((0, 512),))], stream=5)
    for number in (early, late, other):
        builder.free(number)
    return gmlake.find_inefficiencies(builder.build())


def many(calls: int, objects: int) -> Diagnosis:
    builder = TraceBuilder("many")
    numbers = [builder.alloc(KIB * (1 + n), name=f"object {n}") for n in range(objects)]
    for call in range(calls):
        builder.kernel(f"kernel {call % 7}", reads=[numbers[call % objects]])
    for number in numbers:
        builder.free(number)
    return gmlake.find_inefficiencies(builder.build())


def touched(stride: int, weight: int) -> Touched:
    """A few bytes of an object, accessed in one run."""
    builder = TraceBuilder()
    one = builder.alloc(64 * KIB)
    builder.kernel("k", writes=[Part(one, ((512, 4, stride, 1, weight),))])
    builder.free(one)
    report = report_of_diagnosis(gmlake.find_inefficiencies(builder.build()))
    return next(figure for figure in report.figures if isinstance(figure, Touched))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [1, 2**62, 2**63, 2**64 - 1])
def test_any_stride_of_one_run_and_any_weight_is_drawn(number: int) -> None:
    drawn = touched(number, number)
    assert (drawn.begin.tolist(), drawn.end.tolist()) == ([512.0], [516.0])
    assert drawn.weight.tolist() == [min(number, 2**63 - 1)]


def figures(report: Report) -> tuple[Timeline, Calls, Lifelines, Found]:
    timeline, calls, lifelines, *_, found = report.figures
    assert isinstance(timeline, Timeline)
    assert isinstance(calls, Calls)
    assert isinstance(lifelines, Lifelines)
    assert isinstance(found, Found)
    return timeline, calls, lifelines, found


def test_live_bytes_follow_the_calls() -> None:
    timeline, _, _, _ = figures(report_of_diagnosis(small()))
    live = timeline.live["live"]
    assert (live / KIB).tolist() == [64, 96, 96, 96, 112, 112, 48, 16, 0]
    assert timeline.unit == "calls"
    assert timeline.marks[0].kind == "peak"
    assert timeline.marks[0].at == 4


def test_each_call_has_its_stream_and_kind() -> None:
    _, calls, _, _ = figures(report_of_diagnosis(small()))
    assert calls.lanes == ("stream 0", "stream 5")
    assert calls.count.sum() == len(calls.begin) == 9
    kinds = [CALL_KINDS[kind] for kind in calls.kind]
    assert sorted(kinds) == sorted(["allocation"] * 3 + ["free"] * 3 + ["copy", "kernel", "set"])
    assert calls.lane.sum() == 2
    assert np.all(calls.end > calls.begin)
    assert set(calls.labels) == {"alloc", "fill", "work", "zero", "free"}


def test_objects_show_who_accesses_them_and_what_is_wasted() -> None:
    _, _, lifelines, _ = figures(report_of_diagnosis(small()))
    rows = {row.name: row for row in lifelines.rows}
    assert [row.name for row in lifelines.rows] == ["early", "late", "other"]
    assert [(kind, label) for _, kind, label in rows["late"].accesses] == [(1, "fill"), (0, "work")]
    (wasted,) = [stretch for stretch in rows["early"].wasted if stretch[2] == "early allocation"]
    assert wasted[0] == rows["early"].begin
    assert wasted[1] == rows["early"].accesses[0][0]
    assert rows["early"].label == "main  app.py:1"


def test_the_table_says_what_to_change() -> None:
    diagnosis = small()
    _, _, _, found = figures(report_of_diagnosis(diagnosis))
    assert len(found.rows) == len(diagnosis.groups)
    early = next(row for row in found.rows if row.pattern == "early allocation")
    assert early.change.startswith("allocate `early`")
    assert "right before `work` (app.py:7)" in early.change
    assert early.size_bytes == 64 * KIB
    assert any("app.py:1" in frame for frame in early.frames)


def inside() -> Report:
    builder = TraceBuilder("inside")
    matrix = builder.alloc(64 * KIB, name="matrix", element_bytes=4)
    for row in range(8):
        builder.kernel(f"row {row}", writes=[Part(matrix, ((row * 1024, 1024),))])
    builder.kernel("column", reads=[Part(matrix, ((0, 4, 1024, 8, 5),))])
    builder.free(matrix)
    return report_of_diagnosis(gmlake.find_inefficiencies(builder.build()))


def test_bytes_of_objects_that_are_wasteful_inside() -> None:
    (touched,) = [figure for figure in inside().figures if isinstance(figure, Touched)]
    assert touched.rows == (*(f"row {row}" for row in range(8)), "column")
    assert touched.begin[:8].tolist() == [1024.0 * row for row in range(8)]
    assert (touched.end - touched.begin)[8:].tolist() == [4.0] * 8
    assert touched.weight.tolist() == [1] * 8 + [5] * 8
    page = render_page(inside())
    assert "9 calls access 8.00 KiB of 64.0 KiB, 12.5 %." in page


def test_more_runs_than_a_machine_can_list_are_drawn() -> None:
    builder = TraceBuilder("sieve")
    table = builder.alloc(1 << 46, name="table", element_bytes=4)
    builder.kernel("every other", reads=[Part(table, ((0, 8, 16, 1 << 40),))])
    builder.free(table)
    report = report_of_diagnosis(gmlake.find_inefficiencies(builder.build()))
    (touched,) = [figure for figure in report.figures if isinstance(figure, Touched)]
    assert 100 < len(touched.begin) < 1000
    assert touched.begin[0] == 0
    assert touched.end[-1] == ((1 << 40) - 1) * 16 + 8


def test_a_page_is_whole_and_names_are_text() -> None:
    page = render_page(report_of_diagnosis(small(HOSTILE)))
    assert HOSTILE not in page
    assert "What wastes memory in small" in page
    for kind in ("timeline", "calls", "lifelines", "found"):
        assert f'<section class="{kind}"' in page


@pytest.mark.slow
def test_very_many_calls_are_put_together() -> None:
    diagnosis = many(calls=40_000, objects=300)
    report = report_of_diagnosis(diagnosis)
    timeline, calls, lifelines, _ = figures(report)
    assert len(calls.begin) <= MOST_CALLS
    assert calls.count.sum() == len(diagnosis.trace.apis)
    assert "calls in a row share a place" in calls.note
    assert len(lifelines.rows) == MOST_OBJECTS
    assert "240 smaller objects" in lifelines.note
    assert len(timeline.at) < 4000
    assert timeline.live["live"].max() == diagnosis.peak_bytes
    assert len(render_page(report)) < 4 << 20


def test_a_trace_of_nothing_has_a_page() -> None:
    diagnosis = gmlake.find_inefficiencies(TraceBuilder("empty").build())
    page = render_page(report_of_diagnosis(diagnosis))
    assert "No calls." in page


def test_perfetto_has_calls_objects_and_findings(tmp_path: Path) -> None:
    diagnosis = small()
    path = tmp_path / "trace.json"
    save_diagnosis_perfetto(diagnosis, path)
    entries = json.loads(path.read_text(encoding="ascii"))["traceEvents"]
    slices = [entry for entry in entries if entry["ph"] == "X"]
    calls = [entry for entry in slices if entry["pid"] == 1]
    assert [entry["name"] for entry in calls][:4] == ["alloc", "alloc", "fill", "work"]
    live = [entry["args"]["live"] for entry in entries if entry["ph"] == "C"]
    assert max(live) == diagnosis.peak_bytes
    found = [entry for entry in slices if entry.get("cat") == "finding"]
    assert {entry["name"] for entry in found} >= {"early allocation", "late deallocation"}
    threads = {
        entry["args"]["name"] for entry in entries if entry["ph"] == "M" and entry["pid"] == 2
    }
    assert {"early", "late", "other"} <= threads
