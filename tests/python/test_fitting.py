"""Which device a recording fits into, and which batch fits into a device."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.commands import main
from gmlake.fitting import GRANULE_BYTES
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace import REQUEST, Kind, Trace
from recording import BASE, MIB, alloc, free, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WEIGHTS = 100


def read(events: list[dict[str, Any]], name: str = "run") -> Trace:
    trace = gmlake.load(snapshot(events)).devices[0].trace
    trace.name = name
    return trace


def step(batch: int, *, workspaces: int = 0, steps: int = 2, layers: int = 6) -> Trace:
    """Return a training: weights, and for each step activations that grow with the batch."""
    places = iter(range(BASE, 2 * BASE, 1 << 32))
    events = [alloc(next(places), WEIGHTS * MIB) for _ in range(3)]
    for _ in range(steps):
        held = []
        for layer in range(layers):
            held.append((next(places), (layer + 1) * batch * MIB + 7 * MIB))
            events.append(alloc(*held[-1]))
            for extra in range(workspaces if layer == 3 else 0):
                work = next(places), (11 + extra) * MIB
                events += [alloc(*work), free(*work)]
        events += [free(*each) for each in held[::-1]]
    return read(events, f"batch {batch}")


def live(batch: int, layers: int = 6) -> int:
    return (3 * WEIGHTS + sum((layer + 1) * batch + 7 for layer in range(layers))) * MIB


def pieces() -> list[dict[str, Any]]:
    """Return events whose last request needs what lies free in ten pieces of 50 MiB."""
    places = [BASE + i * 100 * MIB for i in range(10)]
    events = [alloc(place, 100 * MIB) for place in places]
    events += [free(place, 100 * MIB) for place in places]
    for place in places:
        events += [alloc(place, 50 * MIB), alloc(place + 50 * MIB, 50 * MIB)]
    events += [free(place, 50 * MIB) for place in places]
    return [*events, alloc(BASE + 1000 * MIB, 450 * MIB)]


def test_paths_are_read_as_their_traces(tmp_path: Path) -> None:
    paths = [tmp_path / "one.pickle", tmp_path / "two.pickle"]
    for path in paths:
        path.write_bytes(pickle.dumps(snapshot(pieces()), 4))
    both = gmlake.fit([paths[0], str(paths[1])], policies="stitch").needs
    assert [need.trace for need in both] == ["one.pickle", "two.pickle"]
    assert gmlake.fit(str(paths[0]), policies="stitch").needs == both[:1]
    assert both[:1] == gmlake.fit(gmlake.load(paths[0]), policies="stitch").needs


def serves(trace: Trace, policy: str, capacity: int) -> bool:
    (result,) = gmlake.replay(of_one_trace(trace), policy, capacity).results
    return result.first_refused is None


@pytest.mark.parametrize("policy", ["caching", "expandable", "stitch"])
@pytest.mark.parametrize("make", [lambda: read(pieces()), lambda: step(9)])
def test_the_smallest_device_serves_and_a_smaller_one_does_not(
    policy: str, make: Callable[[], Trace]
) -> None:
    trace = make()
    (need,) = gmlake.fit(of_one_trace(trace), policies=policy).needs
    assert serves(trace, policy, need.smallest_bytes)
    assert not serves(trace, policy, need.smallest_bytes - GRANULE_BYTES)
    assert need.is_served is None


@pytest.mark.parametrize("batches", [(4, 8), (8, 4), (3, 5)])
def test_the_largest_batch_is_the_one_that_would_run(batches: tuple[int, int]) -> None:
    memory = 3 << 30
    report = gmlake.fit([of_one_trace(step(batch)) for batch in batches], memory, batches)
    assert report.why_line == ""
    for one in report.largest:
        assert serves(step(one.batch), one.policy, memory), one
        assert not serves(step(one.batch + 1), one.policy, memory), one
    stitch = report.largest[-1]
    assert live(stitch.batch) <= memory < live(stitch.batch + 1)


def test_kernels_that_only_one_batch_takes_do_not_hide_the_rest() -> None:
    traces = [step(4, steps=8, layers=30), step(8, steps=8, layers=30, workspaces=3)]
    report = gmlake.fit([of_one_trace(one) for one in traces], 30 << 30, (4, 8), "stitch")
    assert report.why_line == ""
    (stitch,) = report.largest
    assert live(stitch.batch, 30) <= 30 << 30 < live(stitch.batch + 1, 30)


def test_other_programs_are_compared_by_a_line_and_that_is_said() -> None:
    falling = [alloc(BASE + (i << 32), (24 - 2 * i) * MIB) for i in range(12)]
    report = gmlake.fit(
        [of_one_trace(one) for one in (read(falling, "other"), step(16))], "3GiB", (4, 16), "stitch"
    )
    assert [one.is_line for one in report.largest] == [True]
    assert "of 15 requests of the larger batch, only" in str(report)
    small, large = (need.smallest_bytes for need in report.needs)
    expected = 4 + int(((3 << 30) - small) * 12 / (large - small))
    assert report.largest[0].batch == expected


# ---- the command


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for batch in (4, 8):
        paths.append(str(tmp_path / f"{batch}.gmtrace"))
        step(batch).save(paths[-1])
    return paths


def test_the_command_answers_first(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *files, "--batch", "4,8", "--memory", "3GiB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the largest batch that fits into 3.00 GiB: ")
    assert lines[0].endswith(" with stitch")
    assert lines[1] == "(each request extrapolated from batches 4 and 8, and replayed)"
    assert main(["fit", files[0], "--memory", "3GiB"]) == 0
    assert capsys.readouterr().out.startswith("yes, it fits into 3.00 GiB with: caching, ")


def test_the_exit_code_tells_whether_it_fits(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    smallest = str(live(4))  # without fragmentation, and the larger recording needs more
    one_policy = ["--policy", "stitch", "--memory", smallest]
    assert main(["fit", files[0], "--policy", "caching,stitch", "--memory", smallest]) == 0
    assert "no, it does not fit" in capsys.readouterr().out
    assert main(["fit", *files, *one_policy]) == 1
    assert main(["fit", files[1], *one_policy, "--json"]) == 1
    assert main(["fit", *files, "--batch", "4,8", *one_policy]) == 0
    assert main(["fit", *files, "--batch", "4,8", "--memory", "100MiB"]) == 1
    assert main(["fit", *files]) == 0
    assert main(["fit", "absent", files[1], *one_policy]) == 2


def test_how_much_of_what_is_live_lies_in_private_pools() -> None:
    rows = [
        (0, 100 * MIB, 0, 0, 0, Kind.ALLOC, 1),
        (1, 10 * MIB, 0, 0, 0, Kind.ALLOC, 0),
        (1, 0, 0, 0, 0, Kind.FREE, 0),
    ]
    report = gmlake.fit(of_one_trace(Trace(np.array(rows, REQUEST), pools=((0, 1),))))
    assert {need.pooled_live_bytes for need in report.needs} == {100 * MIB}
    assert "110 MiB live at the peak, of these 100 MiB in private pools" in str(report)
    assert {need.smallest_bytes for need in report.needs} <= {110 * MIB, 120 * MIB}
