"""The file that is written when memory runs out, with the real PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.standin.running import Outcome, run_program

import gmlake
from gmlake.pictures.figures import Moments
from gmlake.refusals import refusals_of

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
SETTINGS = ("--devices", "1", "--capacity", "2GiB")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "oom.pickle"


def run_out(name: str, file: Path, **variables: str) -> Outcome:
    outcome = run_program("on_oom", name, str(file), settings=SETTINGS, variables=variables)
    assert outcome.code == 0, outcome.errors
    return outcome


def test_the_first_refusal_is_written_and_the_exception_names_it(file: Path) -> None:
    outcome = run_out("twice", file)
    said = outcome.results
    assert said["first"].endswith(f"To see what lives: gmlake view {file}.")
    assert said["same"]
    assert "To see what lives: torch.cuda.memory_summary(); for the first one: " in said["second"]
    assert not said["outside"]
    assert outcome.errors.count("gmlake: out of memory on device 0, 300 MiB were requested") == 1


def test_lines_and_events_are_kept_where_they_are_asked_for(file: Path) -> None:
    run_out("twice", file, GMLAKE_ON_OOM_LINES="1")
    (refusal,) = refusals_of(gmlake.load(file).devices[0].trace)
    assert (refusal.size_bytes, refusal.live_bytes) == (300 * MIB, (4 * 100 + 5 * 300) * MIB)
    assert refusal.event > 13
    frames = [frame for site in gmlake.load(file).sites.values() for frame in site.frames]
    assert any(frame.startswith("hold_more  ") for frame in frames)


def test_the_page_counts_stitched_memory_once(file: Path) -> None:
    run_out("twice", file, GMLAKE_ON_OOM_LINES="1")
    moments = next(one for one in gmlake.load(file).report().figures if isinstance(one, Moments))
    said = " ".join(moments.moments[moments.shown].says)
    assert said.startswith("Refused: 300 MiB, asked for at ")
    assert (
        "gmlake (policy stitch) holds 1.86 GiB: 1.86 GiB in use by 9 tensors, and nothing " in said
    )


def test_a_history_of_the_programs_own_goes_on(file: Path) -> None:
    run_out("own_history", file)
    frames = [frame for site in gmlake.load(file).sites.values() for frame in site.frames]
    assert any(frame.startswith("hold_more  ") for frame in frames)


def test_what_pytorchs_allocator_refuses_is_written_too(file: Path) -> None:
    outcome = run_out("elsewhere", file)
    assert f"to see what holds the memory: gmlake view {file}" in outcome.errors
    assert refusals_of(gmlake.load(file).devices[0].trace)[0].size_bytes == 300 * MIB


def test_the_exception_says_who_else_has_memory(file: Path) -> None:
    said = run_out("others", file).results["said"]
    (refusal,) = refusals_of(gmlake.load(file).devices[0].trace)
    assert refusal.others_bytes == 128 * MIB
    moments = gmlake.load(file).report().figures[0]
    assert isinstance(moments, Moments)
    figures = moments.moments[moments.shown].says[1]
    assert "gmlake (policy stitch) holds 1.46 GiB: 1.46 GiB in use by " in figures
    assert " PyTorch's own allocator holds 256 MiB. The other 128 MiB are taken by " in figures
    assert figures in said


def test_each_rank_has_its_file_and_none_is_lost(file: Path) -> None:
    run_out("ranks", file)
    run_out("ranks", file)
    names = sorted(path.name for path in file.parent.iterdir())
    assert names[0].startswith("oom-rank3-")
    assert names[1:] == ["oom-rank3.pickle"]
