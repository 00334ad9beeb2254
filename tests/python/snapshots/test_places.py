"""What is said of a moment: what has no line, between which steps it lies, what sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gmlake.pictures.figures import Moments
from gmlake.snapshots.comparing import compare
from gmlake.snapshots.pool_names import _OF_REGIONS
from gmlake.snapshots.queries import query
from recording import BASE, MIB, block, figure, load, segment
from scenarios import Scenario

if TYPE_CHECKING:
    from pathlib import Path

HOW = (
    "To record lines: `gmlake run --record FILE script.py`, or "
    'torch.cuda.memory._record_memory_history(context="all", stacks="python") before the model is '
    "built."
)
REGION: dict[str, Any] = {"pool_id": (_OF_REGIONS, 130)}
OUTSIDE: dict[str, Any] = {"pool_id": (0, 0)}


def says(folder: Path, document: Any, at: str = "") -> str:
    return " ".join(query(load(folder, document), at).answers[0].moment.says)


# ---- what has no line


def held(line: str, *, is_late: bool, size: int = 90) -> Scenario:
    """A block with a line or none, beside one of 10 MiB that has one unless no block has."""
    scenario = Scenario()
    scenario.add("segment_alloc", 200 * MIB, BASE)
    if not is_late:
        scenario.add("alloc", size * MIB, BASE, line)
    scenario.add("alloc", 10 * MIB, BASE + 100 * MIB, "step train.py:31" if size else line)
    return scenario


def held_at_the_end(scenario: Scenario, size: int = 90) -> dict[str, Any]:
    blocks = [block(BASE, size * MIB, size * MIB), block(BASE + 100 * MIB, 10 * MIB, 10 * MIB)]
    return scenario.snapshot([segment(BASE, 200 * MIB, blocks)])


def test_what_was_there_before_is_no_owner_of_the_most(tmp_path: Path) -> None:
    said = says(tmp_path, held_at_the_end(held("", is_late=True)))
    assert "Of what has a line, most is held by train.py:31 in step(): 10.0 MiB in one blo" in said
    begin = "No line is known of 90.0 MiB in one block from before the first recorded event. "
    assert begin + HOW in said
    assert "held by memory from before" not in said


def test_a_thread_without_python_and_a_recording_without_paths_are_two_things(
    tmp_path: Path,
) -> None:
    said = says(tmp_path, held_at_the_end(held("", is_late=False)))
    assert "No line is known of 90.0 MiB in one block of threads that ran no Python, as" in said
    bare = held("", is_late=False)
    for event in bare.events:
        event["frames"] = []
    said = says(tmp_path, held_at_the_end(bare))
    assert "No line is known of 100 MiB in 2 blocks, as the recording has no call paths. " in said
    assert "most is held" not in said.lower()


def test_without_a_history_that_is_the_reason(tmp_path: Path) -> None:
    said = says(tmp_path, held_at_the_end(Scenario()))
    assert f"No line is known of 100 MiB in 2 blocks, as no history was recorded. {HOW}" in said


def test_little_without_a_line_is_not_worth_a_sentence(tmp_path: Path) -> None:
    """1.0 MiB of 101 is less than a hundredth; one more and it is said."""
    for size, is_said in ((1, False), (2, True)):
        scenario = Scenario()
        scenario.add("segment_alloc", 200 * MIB, BASE)
        scenario.add("alloc", 100 * MIB, BASE + 100 * MIB, "step train.py:31")
        blocks = [block(BASE, size * MIB, size * MIB)]
        blocks += [block(BASE + 100 * MIB, 100 * MIB, 100 * MIB)]
        said = says(tmp_path, scenario.snapshot([segment(BASE, 200 * MIB, blocks)]))
        assert ("No line is known" in said) is is_said
        assert ("Most is held by train.py:31") in said


# ---- where in the program


def program() -> Scenario:
    """Two steps of the optimizer, with parts that the program named."""
    scenario = Scenario()

    def note(stage: str, name: str, device: int = 0) -> None:
        time = 1_000_000 + 1000 * len(scenario.events) - 500
        scenario.annotations.append(
            {"stage": stage, "name": name, "device": device, "time_us": time}
        )

    note("END", "from before")
    scenario.add("segment_alloc", 100 * MIB, BASE)
    for number in range(3):
        note("START", "epoch") if not number else None
        note("START", "forward")
        note("START", "another device", device=1)
        scenario.alloc(BASE + number * 8 * MIB, MIB, "step train.py:31")
        note("START", "attention")
        scenario.alloc(BASE + number * 8 * MIB + MIB, MIB, "step train.py:32")
        note("END", "attention")
        note("END", "forward")
        scenario.alloc(BASE + number * 8 * MIB + 2 * MIB, MIB, "step train.py:33")
        if number < 2:
            note("END", "Optimizer.step#Adam.step")
    return scenario


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (0, "At event 0 of 12, 0 s in, before the end of optimizer step 1, the first: 100 MiB"),
        (1, 'in, in "epoch" > "forward", before the end of optimizer step 1, the first: 1.00'),
        (2, 'in, in "epoch" > "forward" > "attention", before the end of'),
        (3, 'in, in "epoch", before the end of optimizer step 1, the first'),
        (5, 'in, in "epoch" > "forward", between the ends of optimizer steps 1 and 2: 1.00 MiB'),
        (9, 'in, in "epoch" > "forward", after the end of optimizer step 2, the last: 1.00'),
    ],
)
def test_a_moment_lies_in_what_the_program_named_and_between_the_ends_of_steps(
    tmp_path: Path, event: int, said: str
) -> None:
    told = says(tmp_path, program().snapshot([]), str(event))
    assert said in told
    assert "another device" not in told
    assert "from before" not in told


def test_a_refusal_lies_in_what_the_program_named(tmp_path: Path) -> None:
    scenario = program()
    scenario.add("oom", 500 * MIB, line="step train.py:40", device_free=MIB)
    told = says(tmp_path, scenario.snapshot([]))
    assert 'asked for at train.py:40 in step(), in "epoch"' in told


def test_names_of_another_thread_are_around_nothing(tmp_path: Path) -> None:
    scenario = Scenario()
    scenario.add("segment_alloc", 100 * MIB, BASE)
    scenario.alloc(BASE, MIB, "step train.py:31")
    notes = (("START", "one", 0), ("START", "two", 1), ("END", "one", 2000), ("END", "two", 3000))
    scenario.annotations = [
        {"stage": stage, "name": name, "device": 0, "time_us": 999_000 + time}
        for stage, name, time in notes
    ]
    assert 'in, in "one": 1.00 MiB came last' in says(tmp_path, scenario.snapshot([]))


# ---- regions


def slept() -> dict[str, Any]:
    """A region sleeps and wakes, which gives its memory back and takes as much again."""
    scenario = Scenario()
    scenario.add("segment_map", 40 * MIB, BASE, **OUTSIDE)
    scenario.add("alloc", 30 * MIB, BASE, "step train.py:31", **OUTSIDE)
    scenario.add("segment_map", 100 * MIB, BASE + 200 * MIB, **REGION)
    scenario.add("alloc", 90 * MIB, BASE + 200 * MIB, "cache engine.py:7", **REGION)
    scenario.add("segment_unmap", 100 * MIB, BASE + 200 * MIB, **REGION)
    scenario.add("segment_map", 100 * MIB, BASE + 200 * MIB, **REGION)
    outside = [block(BASE, 30 * MIB, 30 * MIB), block(BASE + 30 * MIB, 10 * MIB)]
    inside = [block(BASE + 200 * MIB, 90 * MIB, 90 * MIB), block(BASE + 290 * MIB, 10 * MIB)]
    pools = [
        segment(BASE, 40 * MIB, outside, is_expandable=True),
        segment(BASE + 200 * MIB, 100 * MIB, inside, is_expandable=True)
        | {"segment_pool_id": REGION["pool_id"]},
    ]
    document = scenario.snapshot(pools)
    document["allocator_settings"]["gmlake_region_name.130"] = "region 'cache'"
    return document


def test_a_region_has_its_name_and_is_no_free_memory_after_it_slept(tmp_path: Path) -> None:
    seen = load(tmp_path, slept())
    (end,) = query(seen, "end", "pool").answers
    assert [(row.key, row.size_bytes) for row in end.rows] == [
        ("region 'cache'", 90 * MIB),
        ("outside of private pools", 30 * MIB),
    ]
    assert end.rows[0].more["pool_kind"] == "region"
    assert (end.state.held_bytes, end.state.free_bytes) == (140 * MIB, 20 * MIB)
    assert (
        "Regions hold 100 MiB, 10.0 MiB of it free: 100 MiB in region 'cache'." in end.moment.says
    )
    assert "sleeps" not in end.moment.says[0]


def test_what_sleeps_is_live_and_not_held(tmp_path: Path) -> None:
    (asleep,) = query(load(tmp_path, slept()), "4").answers
    assert (asleep.state.live_bytes, asleep.state.held_bytes) == (120 * MIB, 40 * MIB)
    assert asleep.state.free_bytes == 10 * MIB
    assert asleep.moment.says[0].endswith(" 90.0 MiB of what is live sleeps, and is not held.")


def test_what_a_region_holds_is_not_what_the_refusal_could_have_had(tmp_path: Path) -> None:
    document = slept()
    refused = {"action": "oom", "size": 50 * MIB, "device_free": 2 * MIB, "stream": 0}
    document["device_traces"][0].append(refused)
    (held,) = query(load(tmp_path, document), "refusal").answers
    told = held.state.situation
    assert told is not None
    assert [told[f"{what}_bytes"] // MIB for what in ("held", "live", "idle")] == [40, 30, 10]
    assert [told["regions_bytes"], told["regions_idle_bytes"]] == [100 * MIB, 10 * MIB]
    assert told["pools_bytes"] == 0


def test_a_page_has_the_same_sentences(tmp_path: Path) -> None:
    seen = load(tmp_path, slept())
    moments = figure(seen.report(), Moments)
    assert moments.moments[-1].says == query(seen, "end").answers[0].moment.says


def test_nothing_live_is_no_table(tmp_path: Path) -> None:
    scenario = Scenario()
    scenario.add("segment_alloc", 20 * MIB, BASE)
    seen = load(tmp_path, scenario.snapshot([segment(BASE, 20 * MIB, [block(BASE, 20 * MIB)])]))
    for said in (str(query(seen)), str(compare(seen, seen))):
        assert "blocks" not in said
        assert "device 0" in said
    assert "blocks" in str(query(load(tmp_path, slept())))
