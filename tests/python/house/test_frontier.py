"""Where memory ends, in docs: the pictures are those of the committed result."""

from __future__ import annotations

import json
import sys
from typing import Any
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


def test_rounds_that_were_made_apart_have_a_caption_each() -> None:
    from tabled import TABLES

    def run(number: int, commit: str) -> dict[str, Any]:
        made = {"command": "python x.py", "commit": commit, "date": "2026-11-28", "gpu": "a GPU"}
        told = {"tokens_per_second": 10.0, "driver_ns": 1, "timed_seconds": 1.0, "longest": 64}
        return {
            "run": {**made, "processor": "", "python": "3.12.3"},
            "model": "moe",
            "allocator": "gmlake",
            "round": number,
            "device": "a GPU",
            "torch": "2.11.0",
            "lengths": [told],
        }

    text = TABLES["gpu_frontier", "speeds"](
        {"runs": [run(0, "0123456"), run(1, "0123456"), run(0, "1234567")]}
    )
    captions = [line for line in text.splitlines() if line.startswith("<sub>")]
    assert ["0123456" in captions[0], "two runs" in captions[0]] == [True, True]
    assert ["1234567" in captions[1], "one run" in captions[1]] == [True, True]
