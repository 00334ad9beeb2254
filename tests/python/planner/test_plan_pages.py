"""Plans drawn: on pages of `gmlake view`, in notebooks, by trainers' callbacks that plan."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.commands import main
from gmlake.pictures.figures import Packing
from gmlake.planner import MadeFor, SavedPlan, save_plans
from gmlake.trace import REQUEST, Kind, Trace
from made_plans import made_plan
from recording import pairs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("bokeh", reason="pip install 'gmlake[view]'")
    monkeypatch.chdir(tmp_path)
    pairs().save("run.gmtrace")
    return tmp_path


@pytest.fixture
def trace() -> Trace:
    requests = np.zeros(3, REQUEST)
    requests["kind"], requests["id"] = [Kind.ALLOC, Kind.ALLOC, Kind.FREE], [0, 1, 0]
    requests["size_bytes"][:2] = 4 << 20
    return Trace(requests, name="a run")


def titles(page: Path) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"))


def test_a_placement_is_added_on_demand(folder: Path) -> None:
    assert main(["view", "run.gmtrace", "--replay", "caching,stitch", "--plan"]) == 0
    added = ["placed with all requests known", "policies side by side, on the same requests"]
    assert titles(folder / "run.html")[-2:] == added


def test_a_plan_file_becomes_a_page(folder: Path) -> None:
    saved = [SavedPlan(0, "train", made_plan()), SavedPlan(1, "eval", made_plan())]
    save_plans("steps.plan", saved, MadeFor())
    assert main(["view", "steps.plan"]) == 0
    page = (folder / "steps.html").read_text(encoding="utf-8")
    assert titles(folder / "steps.html") == ["device 0, train", "device 1, eval"]
    assert "3 rectangles in 5.00 KiB; no plan is lower than 5.00 KiB" in page
    assert main(["view", "steps.plan", "--plan"]) == 2


def test_a_plan_has_a_figure(trace: Trace) -> None:
    planned = gmlake.plan(trace)
    (packing,) = gmlake.report_of(planned).figures
    assert isinstance(packing, Packing)
    assert packing.unit == "requests"
    assert packing.height_bytes == planned.results[0].peak_bytes
    assert (packing.offset + packing.size).max() == planned.results[0].peak_bytes


def test_a_plan_shows_itself_in_a_notebook(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = gmlake.plan(trace)
    monkeypatch.setitem(sys.modules, "bokeh", None)
    assert planned._repr_html_().count("pip install") == 1
    monkeypatch.undo()
    pytest.importorskip("bokeh", reason="pip install 'gmlake[view]'")
    page = planned._repr_html_()
    assert page.startswith("<iframe")
    assert "packing" in page


@pytest.mark.torch
def test_a_callback_takes_no_other_plan() -> None:
    from gmlake.integrations.training import Training

    with pytest.raises(TypeError, match=r"plan is True, False or a gmlake\.AutoPlan, not 'yes'"):
        Training(None, "yes")
