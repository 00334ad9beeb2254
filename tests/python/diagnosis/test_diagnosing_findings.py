"""find_inefficiencies(): each pattern in words, with its line, its bytes and one change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gmlake import find_inefficiencies
from gmlake.diagnosis import Diagnosis, TraceBuilder
from gmlake.diagnosis.object_layout import NO_API
from proving import prove

if TYPE_CHECKING:
    from gmlake.diagnosis import Finding

MIB = 1 << 20


class Script:
    """A trace in which each call is on the next line of train.py."""

    def __init__(self) -> None:
        self.builder = TraceBuilder("script")
        self._line = 0

    def here(self) -> Any:
        self._line += 1
        return (f"main  train.py:{self._line}",)

    def alloc(self, name: str, size_bytes: int = MIB) -> int:
        return self.builder.alloc(size_bytes, name=name, element_bytes=4, frames=self.here())

    def free(self, *objects: int) -> None:
        for one in objects:
            self.builder.free(one, frames=self.here())

    def kernel(self, label: str, **accesses: Any) -> None:
        self.builder.kernel(label, frames=self.here(), **accesses)

    def copy(self, label: str, **accesses: Any) -> None:
        self.builder.copy(label, frames=self.here(), **accesses)

    def found(self, **options: Any) -> Diagnosis:
        return find_inefficiencies(self.builder.build(), **options)

    def only(self, pattern: str, **options: Any) -> Finding:
        (finding,) = self.found(patterns=(pattern,), **options).findings
        return finding


@pytest.fixture
def script() -> Script:
    return Script()


def test_peaks_and_lives_are_told(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    script.free(x)
    kept = script.builder.exists(8, name="before")
    found = script.found()
    (peak,) = found.peaks
    assert peak.bytes == found.peak_bytes == MIB + 8
    assert peak.call.label == "alloc x"
    assert peak.call.api == 0
    life = found.lives[x]
    assert (life["alloc"], life["first"], life["last"], life["free"]) == (0, 1, 1, 2)
    assert found.lives[kept]["alloc"] == NO_API
    assert found.times.tolist() == [0, 1, 2]


def test_an_empty_trace_has_no_findings() -> None:
    found = find_inefficiencies(TraceBuilder("nothing").build())
    assert not any((found.findings, found.groups, found.advice, found.peaks))
    assert found.peak_bytes == found.fixed_peak_bytes == 0
    assert "nothing found" in str(found)
    prove(found)
