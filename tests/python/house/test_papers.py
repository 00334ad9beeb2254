"""The papers' trainings in docs: pictures are those of the committed result."""

from __future__ import annotations

import json
import sys
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from places import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from papers.draw import pictures
from papers.jobs import JOBS

RESULT: dict[str, Any] = json.loads(
    (ROOT / "benchmarks" / "results" / "papers.json").read_text(encoding="utf-8")
)
PICTURES = pictures(RESULT)


def test_the_result_is_of_all_jobs() -> None:
    assert [job["name"] for job in RESULT["jobs"]] == list(JOBS)
    searched = [job["name"] for job in RESULT["jobs"] if "largest" in job]
    assert searched == [name for name, job in JOBS.items() if job.is_searched]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_from_the_result(name: str) -> None:
    picture = ROOT / "docs" / "images" / name
    assert picture.read_text(encoding="utf-8") == PICTURES[name]
    assert f"images/{name}" in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    ET.fromstring(PICTURES[name])  # noqa: S314 (it was made here)
