"""Recorded refusals, asked again; and whether a trace fits into a device."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake import Trace
from gmlake.commands import main
from gmlake.pictures.figures import Moments
from gmlake.refusals import Refusal, ask_again, refusals_of
from gmlake.snapshots.frames import own_frame
from recording import BASE, MIB, alloc, block, event, figure, free, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = [
    {"name": "empty", "filename": "/x/site-packages/torch/functional.py", "line": 3},
    {"name": "step", "filename": "/home/me/train.py", "line": 33},
    {"name": "<module>", "filename": "/home/me/train.py", "line": 80},
]


def oom(size: int, device_free: int, **more: Any) -> dict[str, Any]:
    common = {"action": "oom", "stream": 0, "time_us": 1}
    return {**common, "size": size, "device_free": device_free, **more}


def halves(count: int = 2) -> list[dict[str, Any]]:
    """Return events that leave so many segments of 300 MiB, each half free."""
    whole = [BASE + i * 300 * MIB for i in range(count)]
    events = []
    for base in whole:
        events += [event("segment_alloc", base, 300 * MIB), alloc(base, 300 * MIB)]
    events += [free(base, 300 * MIB) for base in whole]
    for base in whole:
        events += [alloc(base, 150 * MIB, frames=FRAMES), alloc(base + 150 * MIB, 150 * MIB)]
    events += [free(base + 150 * MIB, 150 * MIB) for base in whole]
    return events


def read(events: list[dict[str, Any]]) -> Trace:
    return Trace.from_snapshot(snapshot(events))


def asked(trace: Trace, *policies: str) -> Refusal:
    (refusal,) = refusals_of(trace)
    return ask_again(trace, refusal, policies or ("caching", "expandable", "stitch"))


def test_a_refusal_tells_how_things_stood() -> None:
    (refusal,) = refusals_of(read([*halves(), oom(500 * MIB, 300 * MIB)]))
    assert (refusal.event, refusal.size_bytes, refusal.stream) == (12, 500 * MIB, 0)
    assert (refusal.live_bytes, refusal.held_bytes) == (300 * MIB, 600 * MIB)
    assert refusal.largest_free_bytes == 150 * MIB
    assert (refusal.device_free_bytes, refusal.capacity_bytes) == (300 * MIB, 900 * MIB)
    assert not refusal.is_limited


def test_each_policy_is_asked_on_a_device_of_that_size() -> None:
    refusal = asked(read([*halves(), oom(500 * MIB, 300 * MIB)]))
    by_name = {answer.policy: answer for answer in refusal.answers}
    assert not by_name["caching"].is_served
    assert by_name["stitch"].is_served
    assert by_name["stitch"].held_bytes == 800 * MIB
    assert refusal.sentences() == [
        (
            "refused at event 12: 500 MiB; live then: 300 MiB of 600 MiB held, 300 MiB free in "
            "pieces that serve at most 150 MiB; 300 MiB left on the device"
        )
    ]
    said = refusal.verdict()
    assert said.startswith("would have been served in the same 900 MiB by: ")
    assert said.endswith("stitch (100 MiB to spare); refused by: caching")


def test_what_nobody_could_serve_is_refused_by_all() -> None:
    refusal = asked(read([*halves(), oom(700 * MIB, 100 * MIB)]))
    assert [answer.is_served for answer in refusal.answers] == [False] * 3
    assert refusal.verdict() == "refused in the same 700 MiB by: caching, expandable, stitch"


def test_what_no_device_can_hold_is_refused_by_all() -> None:
    refusal = asked(read([*halves(), oom(1 << 60, 300 * MIB)]))
    assert [answer.is_served for answer in refusal.answers] == [False] * 3
    assert refusal.size_bytes == 1 << 60


def test_a_limit_of_the_program_is_told_from_a_full_device() -> None:
    refusal = asked(read([*halves(), oom(200 * MIB, 70_000 * MIB)]))
    assert refusal.is_limited
    assert refusal.capacity_bytes == 600 * MIB
    assert "so a limit of the program's refused it" in refusal.sentences()[0]
    assert [answer.is_served for answer in refusal.answers] == [False, True, True]


def test_a_device_that_has_just_enough_left_is_not_the_limit() -> None:
    (limited,) = refusals_of(read([*halves(), oom(200 * MIB, 200 * MIB)]))
    assert limited.is_limited
    assert limited.capacity_bytes == limited.held_bytes == 600 * MIB
    (full,) = refusals_of(read([*halves(), oom(200 * MIB, 200 * MIB - 1)]))
    assert not full.is_limited
    assert full.capacity_bytes == 800 * MIB - 1


def test_a_policy_that_refused_something_before_serves_nothing() -> None:
    far = BASE + 1000 * MIB
    gone = [event("segment_alloc", far, 450 * MIB), alloc(far, 450 * MIB), free(far, 450 * MIB)]
    events = [*halves(), *gone, event("segment_free", far, 450 * MIB), oom(100 * MIB, 60 * MIB)]
    refusal = asked(read(events), "caching", "stitch")
    assert refusal.capacity_bytes == 660 * MIB
    assert [(one.is_served, one.refused_before) for one in refusal.answers] == [(False, 1)] * 2
    assert refusal.verdict() == "refused in the same 660 MiB by: caching, stitch"


def test_without_segments_nobody_is_asked() -> None:
    events = [one for one in halves() if one["action"] != "segment_alloc"]
    refusal = asked(read([*events, oom(500 * MIB, 300 * MIB)]))
    assert (refusal.held_bytes, refusal.answers) == (0, ())
    assert refusal.sentences() == [
        "refused at event 10: 500 MiB; live then: 300 MiB; 300 MiB left on the device"
    ]


def test_without_a_history_nobody_is_asked() -> None:
    part = segment(
        BASE, 500 * MIB, [block(BASE, 300 * MIB, 300 * MIB), block(BASE + 300 * MIB, 200 * MIB)]
    )
    refusal = asked(Trace.from_snapshot(snapshot([oom(300 * MIB, MIB)], [part])))
    assert (refusal.live_bytes, refusal.held_bytes) == (300 * MIB, 500 * MIB)
    assert (refusal.largest_free_bytes, refusal.answers) == (200 * MIB, ())
    assert refusal.verdict().startswith("the recording has no requests from before")


def mapped(*spans: tuple[int, int]) -> list[dict[str, Any]]:
    """Return free segments at these offsets from BASE, each with its size, in MiB."""
    parts = [(BASE + at * MIB, size * MIB) for at, size in spans if size]
    return [segment(begin, size, [block(begin, size)], is_expandable=True) for begin, size in parts]


def test_expandable_segments_are_one_piece_until_they_are_unmapped() -> None:
    begin = [event("segment_map", BASE + i * 20 * MIB, 20 * MIB) for i in range(4)]
    refused = oom(500 * MIB, MIB)
    whole = Trace.from_snapshot(snapshot([*begin, refused], mapped((0, 80))))
    assert refusals_of(whole)[0].largest_free_bytes == 80 * MIB
    cut = [*begin, event("segment_unmap", BASE + 30 * MIB, 20 * MIB), refused]
    (refusal,) = refusals_of(Trace.from_snapshot(snapshot(cut, mapped((0, 30), (50, 30)))))
    assert (refusal.held_bytes, refusal.largest_free_bytes) == (60 * MIB, 30 * MIB)


def test_what_follows_a_part_that_was_unmapped_stays() -> None:
    begin = [event("segment_map", BASE + i * 20 * MIB, 20 * MIB) for i in range(3)]
    for at, size, largest in ((10, 10, 40), (0, 10, 50), (0, 20, 40), (20, 10, 30)):
        cut = event("segment_unmap", BASE + at * MIB, size * MIB)
        left = mapped((0, at), (at + size, 60 - at - size))
        events = [*begin, cut, oom(500 * MIB, MIB)]
        (refusal,) = refusals_of(Trace.from_snapshot(snapshot(events, left)))
        assert refusal.held_bytes == (60 - size) * MIB
        assert refusal.free_bytes == (60 - size) * MIB
        assert refusal.largest_free_bytes == largest * MIB


def test_the_refusal_has_the_figures_of_the_page(tmp_path: Path) -> None:
    """A rest of a block that PyTorch cannot split off is nobody's free memory."""
    events = [event("segment_alloc", BASE, 300 * MIB), alloc(BASE, 300 * MIB)]
    events += [free(BASE, 300 * MIB), alloc(BASE, 100 * MIB)]
    events += [alloc(BASE + 100 * MIB, 50 * MIB - 4096), alloc(BASE + 150 * MIB, 30 * MIB)]
    document = snapshot([*events, oom(500 * MIB, 10 * MIB), free(BASE, 100 * MIB)])
    document["allocator_settings"] = {"gmlake_device_bytes.0": 400 * MIB}
    seen = load(tmp_path, document)
    (refusal,) = refusals_of(seen[0])
    moments = figure(seen.report(), Moments)
    headline = moments.moments[moments.shown].says[0]
    assert (refusal.free_bytes, refusal.largest_free_bytes) == (120 * MIB, 120 * MIB)
    assert "free in pieces 120 MiB, largest piece 120 MiB, 10.0 MiB left" in headline
    assert refusal.others_bytes == 90 * MIB
    assert "Others have 90.0 MiB of it" in headline
    assert ", 120 MiB free in pieces that serve at most 120 MiB;" in refusal.sentences()[0]


def test_what_the_allocator_said_of_the_end_counts_for_the_end_alone(tmp_path: Path) -> None:
    part = segment(
        BASE, 300 * MIB, [block(BASE, 100 * MIB, 100 * MIB), block(BASE + 100 * MIB, 200 * MIB)]
    )
    early, last = oom(500 * MIB, MIB), oom(400 * MIB, MIB)
    begin = [event("segment_alloc", BASE, 300 * MIB), early, alloc(BASE, 100 * MIB)]
    document = snapshot([*begin, last], [part])
    document["allocator_settings"] = {"gmlake_largest_free_bytes.0": 150 * MIB}
    seen = load(tmp_path, document)
    first, second = refusals_of(seen[0])
    assert (first.largest_free_bytes, second.largest_free_bytes) == (300 * MIB, 150 * MIB)
    moments = figure(seen.report(), Moments)
    headline = moments.moments[moments.shown].says[0]
    assert "free in pieces 200 MiB that serve at most 150 MiB, 1.00 MiB left" in headline


def test_at_the_end_the_snapshot_tells_what_was_held() -> None:
    """A stitched tensor is another segment over memory that others hold already."""
    view = BASE + 1000 * MIB
    begin = [event("segment_alloc", BASE, 300 * MIB), alloc(BASE, 100 * MIB)]
    stitched = [event("segment_map", view, 200 * MIB), alloc(view, 150 * MIB)]
    parts = [
        segment(BASE, 100 * MIB, [block(BASE, 100 * MIB, 100 * MIB)]),
        segment(
            view, 200 * MIB, [block(view, 150 * MIB, 150 * MIB), block(view + 150 * MIB, 50 * MIB)]
        ),
    ]
    events = [*begin, *stitched, oom(100 * MIB, 10 * MIB)]
    (refusal,) = refusals_of(Trace.from_snapshot(snapshot(events, parts)))
    assert (refusal.held_bytes, refusal.largest_free_bytes) == (300 * MIB, 50 * MIB)
    assert refusal.capacity_bytes == 310 * MIB


def test_a_trace_without_refusals_has_none() -> None:
    assert refusals_of(read(halves())) == []


# ---- the command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "oom.pickle"
    events = [*halves(), oom(500 * MIB, 300 * MIB, frames=FRAMES)]
    path.write_bytes(pickle.dumps(snapshot(events), 4))
    return path


def test_the_command_answers_what_was_refused(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(file), "--policy", "caching,stitch"]) == 0
    said = " ".join(" ".join(capsys.readouterr().out.splitlines()[:5]).split())
    assert said.startswith("refused at event 12: 500 MiB, asked for at train.py:33 in step(); ")
    assert "; live then: 300 MiB of 600 MiB held" in said
    served = (
        "would have been served in the same 900 MiB by: stitch (100 MiB to spare); refused by: "
    )
    assert f"{served}caching oom.pickle: " in said
    assert "fits into" not in said


def test_private_pools_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nothing is refused, and by what only call paths tell."""
    trees = {"name": "run", "filename": "/env/torch/_inductor/cudagraph_trees.py", "line": 3}
    events = [
        alloc(BASE, MIB, pool_id=(0, 3)),
        alloc(BASE + (1 << 30), 5 * MIB, pool_id=(0, 1), stream=9, frames=[trees]),
        alloc(BASE + (1 << 31), 9 * MIB),
    ]
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot(events), 4))
    command = ["replay", str(path), "--policy", "caching"]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "each private pool is served from a heap of its own; live at the recorded peak: "
        "5.00 MiB in graph pool (0, 1), most likely; 1.00 MiB in MemPool (0, 3) *: the largest"
    ) in said
    other = path.with_name("other.pickle")
    other.write_bytes(path.read_bytes())
    assert main(["replay", str(other), *command[1:], "--json"]) == 0
    pools = json.loads(capsys.readouterr().out)["pools"]
    assert pools["run.pickle"] == pools["other.pickle"]
    assert pools["run.pickle"] == [
        {"pool": [0, 3], "pool_kind": "mempool", "pool_is_sure": True, "pool_at_end": None}
        | {"live_bytes": MIB},
        {"pool": [0, 1], "pool_kind": "graph", "pool_is_sure": False, "pool_at_end": None}
        | {"live_bytes": 5 * MIB},
    ]


def test_a_refusal_in_a_private_pool_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "oom.pickle"
    events = [*halves(), oom(500 * MIB, MIB), oom(400 * MIB, MIB, pool_id=(4, 0))]
    path.write_bytes(pickle.dumps(snapshot(events), 4))
    assert main(["replay", str(path), "--policy", "caching"]) == 0
    said = capsys.readouterr().out
    assert "refused at event 12: 500 MiB; live" in said
    assert "refused at event 13: 400 MiB, in graph pool (4, 0)" in said


def test_refusals_that_are_not_asked_again_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(snapshot([*halves(), *[oom(500 * MIB, MIB)] * 7]), 4))
    assert main(["replay", str(path), "--policy", "caching"]) == 0
    said = capsys.readouterr().out
    assert said.count("refused at event") == 3
    assert "4 more that PyTorch refused are not asked again" in said


def test_a_capacity_ends_in_yes_or_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = BASE + 600 * MIB
    events = [*halves(), event("segment_alloc", last, 280 * MIB)]
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot([*events, alloc(last, 280 * MIB, frames=FRAMES)]), 4))
    command = ["replay", str(path), "--policy", "caching,stitch", "--capacity", "700MiB"]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "yes, it fits into 700 MiB with: stitch (100 MiB to spare)" in said
    assert "no, it does not fit into 700 MiB with: caching; 280 MiB are refused at event 13" in said
    assert "asked for at train.py:33 in step()" in said
    assert "(600 MiB)" in said
    assert "no allocator can do it" not in said
    assert main([*command[:-1], "500MiB"]) == 1
    assert main([*command[:-1], "500MiB", "--json"]) == 1
    capsys.readouterr()
    assert main([*command[:-1], "500MiB"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "with: caching, stitch; 300 MiB are refused at event 3" in said
    assert "no allocator can do it: 600 MiB are live at the peak" in said


def answered(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> tuple[int, str]:
    """The exit code, and the lines between the refusals and the table as one text."""
    code = main(["replay", str(path), "--policy", "caching,stitch", *words])
    said = " ".join(capsys.readouterr().out.split())
    end = said.index("not included: ")
    return code, said[said.rindex(" blocks. in ", 0, end) : end].partition(" in ")[2].strip()


@pytest.mark.parametrize(
    ("capacity", "code", "said"),
    [
        (
            "900MiB",
            0,
            (
                "900 MiB, the 500 MiB that PyTorch refused would have been served, and the whole "
                "recording fits, with: stitch (100 MiB to spare); it is refused again with: caching"
            ),
        ),
        (
            "700MiB",
            1,
            (
                "700 MiB, the 500 MiB that PyTorch refused would be refused again, and the "
                "recording does not fit, with: caching, stitch; no allocator can do it: 800 MiB "
                "would be live at the peak"
            ),
        ),
    ],
)
def test_one_sentence_says_who_serves_it_and_whether_the_whole_fits(
    file: Path, capsys: pytest.CaptureFixture[str], capacity: str, code: int, said: str
) -> None:
    assert answered(capsys, file, "--capacity", capacity) == (code, said)


def later_refused(path: Path, *more: dict[str, Any]) -> Path:
    """Write a recording of a request that is refused, and of one behind it that needs 550 MiB."""
    last = BASE + 600 * MIB
    events = [*halves(), *more, oom(500 * MIB, 300 * MIB), event("segment_alloc", last, 550 * MIB)]
    events.append(alloc(last, 550 * MIB, frames=FRAMES))
    path.write_bytes(pickle.dumps(snapshot(events), 4))
    return path


def test_what_is_refused_behind_it_is_in_the_same_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = later_refused(tmp_path / "oom.pickle")
    assert answered(capsys, path, "--capacity", "1120MiB") == (
        0,
        (
            "1.09 GiB, the 500 MiB that PyTorch refused would have been served, and the whole "
            "recording fits, with: stitch (270 MiB to spare); it does not fit with: caching; 550 "
            "MiB are refused at event 14, asked for at train.py:33 in step()"
        ),
    )
    assert answered(capsys, path, "--capacity", "830MiB") == (
        1,
        (
            "830 MiB, the 500 MiB that PyTorch refused would be refused again, and the recording "
            "does not fit, with: caching; it does not fit with: stitch; 550 MiB are refused at "
            "event 14, asked for at train.py:33 in step(); no allocator can do it: 850 MiB would "
            "be live at the peak"
        ),
    )


def test_json_says_what_is_refused_again_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = later_refused(tmp_path / "oom.pickle", oom(700 * MIB, 300 * MIB))
    words = ["replay", str(path), "--policy", "caching,stitch", "--capacity", "1GiB", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    caching, stitch = told["results"]
    assert [one["first_refused"] for one in (caching, stitch)] == [12, None]
    assert (caching["is_refused_again"], caching["refused_bytes"]) == (True, 700 * MIB)
    assert (caching["events"], told["refused"]) == (16, {"oom.pickle": 2})
    answers = [one["answers"] for one in told["refusals"]["oom.pickle"]]
    assert [[one["is_served"] for one in each] for each in answers] == [[False, True]] * 2
    assert {one["asked_bytes"] for one in told["refusals"]["oom.pickle"]} == {1 << 30}


def test_several_refusals_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = later_refused(tmp_path / "oom.pickle", oom(700 * MIB, 300 * MIB))
    assert answered(capsys, path, "--capacity", "1GiB") == (
        0,
        (
            "1.00 GiB, the 2 requests that PyTorch refused would have been served, and the whole "
            "recording fits, with: stitch (24.0 MiB to spare); of these 700 MiB are refused again "
            "with: caching"
        ),
    )


def test_what_is_not_included_is_said_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = snapshot([*halves(), oom(500 * MIB, 300 * MIB)])
    document["allocator_settings"] = {"gmlake_device_bytes.0": 960 * MIB}
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(document, 4))
    words = ["replay", str(path), "--policy", "caching,stitch", "--capacity"]
    for capacity, fits in (("900MiB", "stitch"), ("850MiB", "none of them")):
        main([*words, capacity])
        said = " ".join(capsys.readouterr().out.split())
        assert "not included: memory of CUDA itself (its context), of libraries beside" in said
        assert (
            "these had 60.0 MiB of the device when it was recorded; with that much of it " in said
        )
        assert f"with: {fits} oom.pickle: " in said
    main([*words, "900MiB", "--json"])
    assert json.loads(capsys.readouterr().out)["others"] == {"oom.pickle": 60 * MIB}
    main([*words, "900MiB"])
    said = " ".join(capsys.readouterr().out.split())
    assert "800 MiB live at the peak, what PyTorch refused included" in said
    main(words[:-1])
    said = capsys.readouterr().out
    assert "not included" not in said
    assert "600 MiB live at the peak" in said
    assert "refused included" not in said


def test_the_users_own_line_is_the_innermost_outside_of_libraries() -> None:
    frames = [f"{frame['name']}  {frame['filename']}:{frame['line']}" for frame in FRAMES]
    assert own_frame(frames) == "step  /home/me/train.py:33"
    assert own_frame(frames[:1]) == ""
    assert own_frame(["c10::f  ??:0", "g  <frozen runpy>:1", *frames]) == frames[1]


def test_json_has_the_answers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(file), "--policy", "caching,stitch", "--json"]) == 0
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]["oom.pickle"]
    assert (refusal["size_bytes"], refusal["capacity_bytes"]) == (500 * MIB, 900 * MIB)
    assert [answer["is_served"] for answer in refusal["answers"]] == [False, True]


def test_the_figures_of_a_policy_that_refused_do_not_win() -> None:
    last = BASE + 600 * MIB
    events = [*halves(), event("segment_alloc", last, 280 * MIB), alloc(last, 280 * MIB)]
    report = gmlake.replay(read(events), "caching,stitch", "700MiB")
    rows = [line.strip() for line in str(report).splitlines()]
    caching, stitch = [row for row in rows if row.startswith(("caching", "stitch"))][:2]
    assert caching.startswith("caching ")
    assert "(600 MiB)" in caching
    assert stitch.startswith("stitch *")
