"""find_inefficiencies(): each pattern in words, with its line, its bytes and one change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake import Diagnosis, TraceBuilder, TraceError, find_inefficiencies
from gmlake.diagnosis import Finding, Part, Pattern, Place, _diagnosis
from gmlake.diagnosis.object_layout import NO_API
from gmlake.diagnosis.words import line_of

if TYPE_CHECKING:
    from pathlib import Path

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


# ---- the ten patterns


def test_early_allocation(script: Script) -> None:
    x, y = script.alloc("x"), script.alloc("y")
    script.kernel("f", writes=(y,))
    script.kernel("g", reads=(y,), writes=(x,))
    script.free(x, y)
    finding = script.only("early allocation")
    assert finding.change == (
        "allocate `x` (train.py:1) right before `g` (train.py:4), 3 calls later"
    )
    assert (finding.object_name, finding.bytes, finding.distance) == ("x", MIB, 3)
    assert finding.line == "train.py:1"


def test_late_deallocation(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    y = script.alloc("y", 2 * MIB)
    script.kernel("g", writes=(y,))
    script.free(y, x)
    finding = script.only("late deallocation")
    assert finding.change == (
        "free `x` right after `f` (train.py:2), 4 calls earlier than in train.py:6"
    )
    assert finding.line == "train.py:6"
    assert finding.saving_bytes == MIB


def test_redundant_allocation(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    script.kernel("g", reads=(x,))
    y = script.alloc("y")
    script.kernel("h", writes=(y,))
    script.free(x, y)
    finding = script.only("redundant allocation")
    assert finding.change == (
        "let `y` (train.py:4) have the memory of `x` from `h` (train.py:5) on: "
        "nothing uses it after `g` (train.py:3)"
    )
    assert (finding.object, finding.other, finding.other_name) == (y, x, "x")
    assert finding.saving_bytes == MIB


def test_unused_allocation(script: Script) -> None:
    script.free(script.alloc("x"))
    finding = script.only("unused allocation")
    assert finding.change == "do not allocate `x` (train.py:1): nothing uses it"
    assert finding.saving_bytes == finding.size_bytes == MIB
    assert finding.is_unused


def test_memory_leak(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    finding = script.only("memory leak")
    assert finding.change == "free `x` right after `f` (train.py:2), its last use: nothing does"
    assert finding.to_api is None


def test_memory_leak_of_what_nothing_uses(script: Script) -> None:
    script.alloc("x")
    finding = script.only("memory leak")
    assert finding.change == "free `x` (train.py:1): nothing does, and nothing uses it"


def test_temporary_idleness(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    y = script.alloc("y", 4 * MIB)
    script.kernel("g", writes=(y,))
    script.free(y)
    script.kernel("h", reads=(x,))
    script.free(x)
    finding = script.only("temporary idleness")
    assert finding.change == (
        "copy `x` (1.00 MiB) out to the host after `f` (train.py:2) and back before `h` "
        "(train.py:6), 4 calls later; or free it and make it again"
    )
    assert finding.saving_bytes == MIB
    assert script.found(patterns=("temporary idleness",), idle_apis=3).findings
    assert not script.found(patterns=("temporary idleness",), idle_apis=4).findings


def test_dead_write(script: Script) -> None:
    x = script.alloc("x")
    script.copy("upload", writes=(x,))
    script.copy("upload again", writes=(Part(x, ((0, MIB // 2),)),))
    script.free(x)
    finding = script.only("dead write")
    assert finding.change == (
        "let `upload` (train.py:2) leave out 512 KiB of `x`: `upload again` (train.py:3) writes "
        "them again before anything reads them"
    )
    assert finding.line == "train.py:2"


def test_dead_write_of_everything(script: Script) -> None:
    x = script.alloc("x")
    script.copy("upload", writes=(x,))
    script.copy("upload again", writes=(x,))
    script.free(x)
    assert script.only("dead write").change == (
        "leave out `upload` (train.py:2): `upload again` (train.py:3) writes 1.00 MiB of `x` "
        "again before anything reads them"
    )


def test_overallocation(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(Part(x, ((0, MIB // 4),)),))
    script.free(x)
    finding = script.only("overallocation")
    assert finding.change == (
        "allocate 256 KiB for `x` (train.py:1): only 25 % of its elements are ever used"
    )
    assert finding.guidance == "easy: the rest is in one piece"
    assert finding.saving_bytes == 3 * MIB // 4


def test_scattered_overallocation(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(Part(x, ((0, 256, 1024, 1024),)),))
    script.free(x)
    finding = script.only("overallocation")
    assert finding.guidance == "hard: the rest is scattered"
    assert finding.change.startswith("pack what is used of `x` (train.py:1) into 256 KiB")
    assert finding.fragmented_percent > 80


def test_non_uniform_frequency(script: Script) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    half = MIB // 2
    script.kernel("g", reads=(Part(x, ((0, half, half, 1, 3), (half, half))),))
    script.free(x)
    finding = script.only("non-uniform access frequency")
    assert finding.percent == pytest.approx(50)
    assert finding.line == "train.py:3"
    assert finding.change == (
        "keep the elements of `x` that `g` (train.py:3) uses most in shared memory or cache: "
        "how often they are used varies by 50 %"
    )


def test_structured_access(script: Script) -> None:
    x = script.alloc("x")
    for row in range(4):
        script.kernel("f", writes=(Part(x, ((row * MIB // 4, MIB // 4),)),))
    script.free(x)
    finding = script.only("structured access")
    assert finding.pieces == 4
    assert finding.saving_bytes == finding.bytes == 3 * MIB // 4
    assert finding.change == (
        "allocate each of the 4 slices of `x` (train.py:1) right before its first use and free "
        "it after its last, between `f` (train.py:2) and `f` (train.py:5)"
    )


# ---- the whole


@pytest.fixture
def layers() -> Diagnosis:
    """48 layers whose activations are freed at the end, and an array that nothing uses."""
    builder = TraceBuilder("layers")
    kept = []
    unused = builder.alloc(MIB, name="unused", frames=("main  train.py:2",))
    for layer in range(48):
        at: Any = {"frames": ("forward  model.py:7",), "scope": f"layers.{layer}"}
        x = builder.alloc(MIB, name=f"layers.{layer}.out", **at)
        builder.kernel("mm", writes=(x,), **at)
        kept.append(x)
    for x in kept:
        builder.free(x, frames=("main  train.py:9",))
    builder.free(unused)
    return find_inefficiencies(builder.build())


def test_findings_of_layers_are_one_group(layers: Diagnosis) -> None:
    (late,) = [one for one in layers.groups if one.example.pattern == "late deallocation"]
    assert late.count == 48
    assert late.bytes == 48 * MIB
    assert late.saving_bytes == 47 * MIB
    assert "48 times, as: free `layers." in " ".join(str(layers).split())
    assert len(str(layers).splitlines()) < 20


def test_changes_reach_the_fixed_peak_and_none_is_idle(layers: Diagnosis) -> None:
    numbers = [number for change in layers.changes for number in change.group.numbers]
    assert layers.peak_bytes == 49 * MIB
    assert layers.peak_with(numbers) == layers.fixed_peak_bytes == MIB
    peaks = [change.peak_bytes for change in layers.changes]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] == MIB
    for left_out in layers.changes:
        others = [
            number
            for change in layers.changes
            if change is not left_out
            for number in change.group.numbers
        ]
        assert layers.peak_with(others) > MIB


def test_keeping_memory_away_comes_last(script: Script) -> None:
    x, unused = script.alloc("x"), script.alloc("unused")
    script.kernel("f", writes=(x,))
    y = script.alloc("y", 4 * MIB)
    script.kernel("g", writes=(y,))
    script.free(y)
    script.kernel("h", reads=(x,))
    script.free(x, unused)
    changes = script.found().changes
    patterns = [change.group.example.pattern for change in changes]
    assert patterns == ["unused allocation", "temporary idleness"]
    assert [change.peak_bytes for change in changes] == [5 * MIB, 4 * MIB]


def test_every_finding_can_be_fixed(layers: Diagnosis) -> None:
    layers.check()
    layers.check(())
    layers.check(layers.findings[:3])
    for finding in layers.findings:
        layers.check([finding])
        expected = layers.peak_bytes - finding.saving_bytes
        assert layers.peak_with([finding]) == layers.peak_with([finding.number]) == expected


def test_unknown_findings_are_refused(layers: Diagnosis) -> None:
    with pytest.raises(ValueError, match="there is no finding"):
        layers.peak_with([len(layers.findings)])
    with pytest.raises(ValueError, match="there is no finding"):
        layers.check([len(layers.findings)])
    with pytest.raises((ValueError, OverflowError)):
        layers.peak_with([-1])


def test_a_handle_is_no_other_thing() -> None:
    for handle in (None, 7, "x"):
        with pytest.raises((TypeError, ValueError)):
            _diagnosis.peak_with(handle, b"")
    with pytest.raises((TypeError, ValueError)):
        _diagnosis.check(np.random.default_rng, b"")


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
    assert not any((found.findings, found.groups, found.changes, found.peaks))
    assert found.peak_bytes == found.fixed_peak_bytes == 0
    assert "nothing found" in str(found)
    found.check()


def test_what_is_printed_holds_no_control_characters(script: Script) -> None:
    script.alloc("x\x1b[31m\n[bold]y[/bold]")
    text = str(script.found())
    assert "\x1b" not in text
    assert "[bold]" in "".join(text.split())


def test_json_has_everything(layers: Diagnosis) -> None:
    told = json.loads(json.dumps(layers.to_dict(), allow_nan=False))
    assert told["peak_bytes"] == 49 * MIB
    assert told["options"]["idle_apis"] == 2
    assert told["options"]["patterns"][0] == "early allocation"
    assert len(told["findings"]) == len(layers.findings)
    finding = told["findings"][told["changes"][0]["example"]]
    assert finding["pattern"] == "late deallocation"
    assert finding["line"] == "train.py:9"
    assert finding["change"].startswith("free `layers.")
    assert finding["from"]["label"] == "mm"
    assert told["peaks"][0]["bytes"] == 49 * MIB


def test_files_are_diagnosed_as_traces_are(script: Script, tmp_path: Path) -> None:
    script.free(script.alloc("x"))
    path = tmp_path / "x.gmobjects"
    script.builder.build().save(path)
    assert len(find_inefficiencies(path).findings) == len(script.found().findings) > 0
    with pytest.raises(TraceError, match="absent"):
        find_inefficiencies(tmp_path / "absent")


# ---- what is refused


@pytest.mark.parametrize(
    "options",
    [
        {"peak_count": 0},
        {"peak_count": 9},
        {"early_apis": 0},
        {"late_apis": -1},
        {"idle_apis": 1 << 64},
        {"reuse_percent": 101.0},
        {"accessed_percent": -1.0},
        {"fragmented_percent": float("nan")},
        {"frequency_percent": float("inf")},
        {"patterns": ("wrong",)},
        {"patterns": ()},
    ],
)
def test_impossible_options_are_refused(script: Script, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"outside|no pattern") as caught:
        script.found(**options)
    assert not isinstance(caught.value, TraceError)


@pytest.mark.parametrize(
    "change", [{"object": 7}, {"kind": 9}, {"first_access": 1}, {"access_count": 2}]
)
def test_contradictory_traces_are_refused(script: Script, change: dict[str, int]) -> None:
    x = script.alloc("x")
    script.kernel("f", writes=(x,))
    script.free(x)
    trace = script.builder.build()
    apis = trace.apis.copy()
    for name, value in change.items():
        apis[name][0] = value
    with pytest.raises(TraceError):
        find_inefficiencies(replace(trace, apis=apis))


def test_torn_records_are_refused() -> None:
    with pytest.raises(ValueError, match="apis must be whole records"):
        _diagnosis.diagnose(b"x", b"", b"", b"")


def test_patterns_are_known_by_their_words() -> None:
    assert [pattern.words for pattern in Pattern] == list(_diagnosis.patterns())
    assert Pattern.of("Non_Uniform-access frequency") is Pattern.NON_UNIFORM_FREQUENCY
    assert Pattern.of("dead-write") is Pattern.DEAD_WRITE
    assert gmlake.find_inefficiencies is find_inefficiencies


def test_a_place_is_the_users_own_line() -> None:
    library = "forward  /env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134"
    own = "step  /home/me/project/train.py:31"
    assert line_of(Place((library, own))) == "/home/me/project/train.py:31"
    assert line_of(Place((library,))).endswith("linear.py:134")


def test_what_is_hardly_worth_a_line_is_no_change() -> None:
    builder = TraceBuilder("large and small")
    large = builder.alloc(1 << 30, name="large")
    small = builder.alloc(1 << 19, name="small")
    used = builder.alloc(1 << 20, name="used")
    builder.kernel("f", writes=[used])
    for number in (large, small, used):
        builder.free(number)
    diagnosis = gmlake.find_inefficiencies(builder.build())
    assert [change.group.example.object_name for change in diagnosis.changes] == ["large"]
    assert {"large", "small"} <= {group.example.object_name for group in diagnosis.groups}
