"""Processes that share a device: idle memory goes to the one that would be refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.standin.gmlake_run import run_benchmark
from tests.standin.running import Outcome, run_program

if TYPE_CHECKING:
    from pathlib import Path

TRUTHS = {
    "before": ("why", "number"),
    "terms": ("way", "variable", "priority", "weight", "name", "good"),
    "serves": ("about_what_is_missing", "known", "counted"),
    "wakes": ("given", "awake"),
    "grows": ("given",),
    "shrinks": ("given",),
    "yields": ("given", "too_much", "kept"),
    "dozes": ("given", "asleep", "awake"),
    "natives": ("given",),
    "pools": ("given",),
    "limits": ("refused", "not_asked", "too_much"),
    "captures": ("refused", "kept", "later"),
    "graphs": ("given",),
    "lives": ("refused", "kept", "known"),
    "forks": ("ended", "served"),
    "begins": ("given", "ended"),
    "ended": ("well",),
    "killed": ("served", "gone"),
}
HANDED = {
    "comes": ("most", "of_what_was_given", "bytes", "a_file_for_each", "reserved"),
    "goes_back": ("came", "went", "there"),
    "goes_on": ("waits", "went", "came", "kept"),
    "is_dropped": ("waits", "served"),
    "leaves_some": ("before", "after", "served"),
    "goes_to_the_device": ("came", "closed", "free"),
    "is_not_inherited": ("came", "none", "kept"),
    "natives": ("through_the_device",),
    "natives_last": ("waits", "served"),
    "killed": ("all", "bytes"),
    "is_lent": ("came", "lent", "ended"),
}


def settings_of(folder: Path, capacity: str) -> tuple[str, ...]:
    return ("--backed", "--capacity", capacity, "--shared", str(folder / "devices"))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run them all in one program."""
    folder = tmp_path_factory.mktemp("shared")
    variables = {"XDG_RUNTIME_DIR": str(folder)}
    return run_program("neighbours", settings=settings_of(folder, "1GiB"), variables=variables)


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


def handed(
    folder: Path, *arguments: str, is_backed: bool, capacity: str = "80GiB", knobs: str = ""
) -> Outcome:
    backed = ("--backed",) if is_backed else ()
    settings = (*backed, "--capacity", capacity, "--shared", str(folder / "devices"))
    variables = {"XDG_RUNTIME_DIR": str(folder), "GMLAKE_SET": knobs}
    return run_program("handed", *arguments, settings=settings, variables=variables)


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return handed(tmp_path_factory.mktemp("handed"), is_backed=True)


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in HANDED for name in HANDED[part]]
)
def test_large_chunks_go_as_files(handed_over: Outcome, part: str, name: str) -> None:
    assert handed_over.results[part][name] is True


def test_half_of_the_files_are_the_programs(tmp_path: Path) -> None:
    found = handed(tmp_path, "few", is_backed=False)
    assert found.results["few_files"] == {"served": True, "half": True, "some": True}, found.errors


@pytest.mark.long
def test_rows_that_were_given_are_another_processs(tmp_path: Path) -> None:
    knobs = "chunk_size=64MiB"
    found = handed(tmp_path, "rows", is_backed=True, capacity="8GiB", knobs=knobs)
    assert found.results["rows"] == {"given": True, "theirs": True, "kept": True}, found.errors


@pytest.mark.long
def test_the_turns_of_the_benchmark_are_never_refused(tmp_path: Path) -> None:
    ended = run_benchmark(
        *("gpu.handing", tmp_path, "--rounds", "10", "--handed", "512MiB", "--block", "16MiB"),
        *("--ways", "shared", "default", "--output", "handing.json"),
        settings=settings_of(tmp_path, "2GiB"),
        variables={"XDG_RUNTIME_DIR": str(tmp_path)},
    )
    output = tmp_path / "handing.json"
    assert output.exists(), ended.output + ended.errors
    ways = json.loads(output.read_text(encoding="utf-8"))["ways"]  # bits mean nothing here
    assert (ways["shared"]["refused"], ways["default"]["refused"]) == ([], [])
    assert ways["shared"]["handed_bytes"] >= 512 << 20
    assert ways["default"]["handed_bytes"] == 0
    assert ways["shared"]["used_after_the_kill"] > 0.97
