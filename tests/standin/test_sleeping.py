"""Regions that sleep and wake below the real PyTorch, with real bytes."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "cpu": ("contents", "other_device", "addresses", "gained", "report", "live", "text"),
    "disk": ("contents", "other_device", "addresses", "gained", "report", "live", "text"),
    "without": ("outside_stays", "usable", "same_address"),
    "who": ("outer", "inner", "decorated"),
    "everywhere": ("own", "all", "own_in_all", "over"),
    "errors": ("saved", "contents", "not_saved"),
    "freed": ("less", "contents"),
    "graphs": ("in_region", "replayed", "given_back"),
    "hooks": ("told", "refused", "awake"),
    "too_little": ("asleep", "contents"),
}
ERRORS = {
    "asleep": "ValueError: region 'errors' is asleep already",
    "awake": "ValueError: region 'errors' is awake already",
    "allocating": "GPU 0: region 'errors' on GPU 0: this memory is asleep: wake it first, or ",
    "unknown": "ValueError: no region is called 'nobody'; there are: ",
    "options": "ValueError: region 'errors' exists with backup='cpu', folder=None, graphs=False",
    "once": """ValueError: backup is "same", "cpu", "disk" or None, not 'tape'""",
    "backup": 'ValueError: backup is "cpu", "disk" or None, not \'tape\'',
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run them all in one program."""
    settings = ("--devices", "2", "--backed", "--capacity", "1GiB")
    return run_program("sleeping", settings=settings)


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


@pytest.mark.parametrize("name", ["allocated", "reserved", "snapshot"])
def test_pytorch_counts_regions(outcome: Outcome, name: str) -> None:
    assert outcome.results["statistics"][name] is True


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line(outcome: Outcome, name: str) -> None:
    text = outcome.results["errors"][name]
    assert ERRORS[name] in text
    assert "\n" not in text


def test_the_end_of_memory_is_pytorchs(outcome: Outcome) -> None:
    text = outcome.results["too_little"]["refused"]
    assert text.startswith("OutOfMemoryError: region 'big-2' on GPU 0: ")


def test_a_region_needs_gmlake(outcome: Outcome) -> None:
    assert "gmlake does not serve this process" in outcome.results["early"]


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors


def test_a_region_is_entered_where_nothing_is_free() -> None:
    done = run_program("full_device", settings=("--capacity", "1GiB"))
    assert (done.code, done.results) == (0, {"free": 0, "failure": ""})
