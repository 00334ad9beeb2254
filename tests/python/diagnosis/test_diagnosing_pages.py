"""A diagnosis as figures of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.diagnosis import Part, TraceBuilder
from gmlake.diagnosis.pages import Found, report_of_diagnosis
from gmlake.diagnosis.pictures.calls_picture import Calls
from gmlake.diagnosis.pictures.lifelines import Lifelines
from gmlake.diagnosis.pictures.touched import Touched
from gmlake.pictures import render_page
from gmlake.pictures.figures import Timeline

if TYPE_CHECKING:
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


def test_a_page_is_whole_and_names_are_text() -> None:
    page = render_page(report_of_diagnosis(small(HOSTILE)))
    assert HOSTILE not in page
    assert "What wastes memory in small" in page
    for kind in ("timeline", "calls", "lifelines", "found"):
        assert f'<section class="{kind}"' in page
