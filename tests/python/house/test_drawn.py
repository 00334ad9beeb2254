"""Pictures in docs are those of the committed results."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.append(str(ROOT / "benchmarks"))

from gpu import frontier_picture

PLACES: dict[str, tuple[Callable[[Any], dict[str, str]], tuple[str, ...]]] = {
    "gpu_frontier": (frontier_picture.pictures, ("docs/benchmarks.md",)),
}


@pytest.mark.parametrize("result", PLACES)
def test_a_picture_is_drawn_from_the_result(result: str) -> None:
    pictures, documents = PLACES[result]
    path = ROOT / "benchmarks" / "results" / f"{result}.json"
    drawn = pictures(json.loads(path.read_text(encoding="utf-8")))
    assert drawn
    for name, text in drawn.items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == text
        ET.fromstring(text)  # noqa: S314 (it was made here)
        for document in documents:
            assert f"images/{name}" in (ROOT / document).read_text(encoding="utf-8")
