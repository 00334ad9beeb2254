"""Recorded refusals, asked again; and whether a trace fits into a device."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import main
from gmlake.refusals import Refusal, ask_again, refusals_of
from gmlake.snapshots.whole import of_one_trace
from recording import BASE, MIB, alloc, block, event, free, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.trace import Trace

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
    return gmlake.load(snapshot(events)).devices[0].trace


def asked(trace: Trace, *policies: str) -> Refusal:
    (refusal,) = refusals_of(trace)
    return ask_again(trace, refusal, policies or ("caching", "expandable", "stitch"))


def test_each_policy_is_asked_on_a_device_of_that_size() -> None:
    refusal = asked(read([*halves(), oom(500 * MIB, 300 * MIB)]))
    by_name = {answer.policy: answer for answer in refusal.answers}
    assert not by_name["caching"].is_served
    assert by_name["stitch"].is_served
    assert by_name["stitch"].held_bytes == 800 * MIB
    assert refusal.sentences() == [
        (
            "refused at event 12: 500 MiB: 300 MiB are free, in 2 pieces that serve at most 150 "
            "MiB, and 300 MiB more on the device: enough, but fragmented. 200 MiB less would have "
            "been served."
        ),
        (
            "GPU 0 has 300 MiB free. PyTorch holds 600 MiB: 300 MiB in use by 2 tensors, and 300 "
            "MiB free, which serve at most 150 MiB."
        ),
    ]
    said = refusal.verdict()
    assert said.startswith("would have been served in the same 900 MiB by: ")
    assert said.endswith("stitch (100 MiB to spare); refused by: caching")


def test_what_was_refused_before_is_not_asked_again() -> None:
    trace = read([*halves(), oom(5000 * MIB, 300 * MIB), oom(500 * MIB, 300 * MIB)])
    answers = ask_again(trace, refusals_of(trace)[1], ("stitch",)).answers
    assert [answer.is_served for answer in answers] == [True]


def figures_of(refusal: Refusal, *names: str) -> list[int]:
    assert refusal.situation is not None
    return [refusal.situation[f"{name}_bytes"] for name in names]


def mapped(*spans: tuple[int, int]) -> list[dict[str, Any]]:
    """Return free segments at these offsets from BASE, each with its size, in MiB."""
    parts = [(BASE + at * MIB, size * MIB) for at, size in spans if size]
    return [segment(begin, size, [block(begin, size)], is_expandable=True) for begin, size in parts]


def test_what_follows_a_part_that_was_unmapped_stays() -> None:
    begin = [event("segment_map", BASE + i * 20 * MIB, 20 * MIB) for i in range(3)]
    for at, size, largest in ((10, 10, 40), (0, 10, 50), (0, 20, 40), (20, 10, 30)):
        cut = event("segment_unmap", BASE + at * MIB, size * MIB)
        left = mapped((0, at), (at + size, 60 - at - size))
        events = [*begin, cut, oom(500 * MIB, MIB)]
        (refusal,) = refusals_of(gmlake.load(snapshot(events, left)).devices[0].trace)
        assert figures_of(refusal, "held", "idle") == [(60 - size) * MIB] * 2
        assert figures_of(refusal, "largest") == [largest * MIB]


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
    (refusal,) = refusals_of(gmlake.load(snapshot(events, parts)).devices[0].trace)
    assert figures_of(refusal, "held", "largest") == [300 * MIB, 50 * MIB]
    assert refusal.capacity_bytes == 310 * MIB


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
    said = " ".join(" ".join(capsys.readouterr().out.splitlines()[:10]).split())
    assert said.startswith(
        "refused at event 12: 500 MiB, asked for at train.py:33 in step(): 300 MiB are free, in 2 "
    )
    assert "PyTorch holds 600 MiB: 300 MiB in use by 2 tensors" in said
    served = (
        "would have been served in the same 900 MiB by: stitch (100 MiB to spare); refused by: "
    )
    assert f"been served. {served}caching GPU 0 has 300 MiB free." in said
    assert "fits into" not in said


def test_a_refusal_in_a_private_pool_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "oom.pickle"
    events = [*halves(), oom(500 * MIB, MIB), oom(400 * MIB, MIB, pool_id=(4, 0))]
    path.write_bytes(pickle.dumps(snapshot(events), 4))
    assert main(["replay", str(path), "--policy", "caching"]) == 0
    said = capsys.readouterr().out
    assert "refused at event 12: 500 MiB: 300 MiB of 601 MiB are live" in said
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


def answered(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> tuple[int, str]:
    """The exit code, and the lines between the refusals and the table as one text."""
    code = main(["replay", str(path), "--policy", "caching,stitch", *words])
    said = " ".join(capsys.readouterr().out.split())
    end = said.index("not included: ")
    return code, said[said.rindex(" blocks. in ", 0, end) : end].partition(" in ")[2].strip()


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


def test_the_figures_of_a_policy_that_refused_do_not_win() -> None:
    last = BASE + 600 * MIB
    events = [*halves(), event("segment_alloc", last, 280 * MIB), alloc(last, 280 * MIB)]
    report = gmlake.replay(of_one_trace(read(events)), "caching,stitch", "700MiB")
    rows = [line.strip() for line in str(report).splitlines()]
    caching, stitch = [row for row in rows if row.startswith(("caching", "stitch"))][:2]
    assert caching.startswith("caching ")
    assert "(600 MiB)" in caching
    assert stitch.startswith("stitch *")
