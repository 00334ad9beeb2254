"""Where memory ends, in docs: the pictures are those of the committed result."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree as ET

import pytest

from places import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from gpu.frontier_picture import pictures

RESULT = ROOT / "benchmarks" / "results" / "gpu_frontier.json"
PICTURES = pictures(json.loads(RESULT.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_from_the_result(name: str) -> None:
    picture = ROOT / "docs" / "images" / name
    assert picture.read_text(encoding="utf-8") == PICTURES[name]
    assert f"docs/images/{name}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"images/{name}" in (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    ET.fromstring(PICTURES[name])  # noqa: S314 (it was made here)
