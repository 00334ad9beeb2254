"""vLLM's KV cache on what a device has left, which gives way and grows between steps."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "registers": ("wrong", "off", "other_version", "on", "once"),
    "refuses": (
        *("said", "checked", "served", "kinds", "several", "profile", "not_enabled"),
        "too_little",
    ),
    "begins": ("requested", "checked_again", "one_memory", "takes", "spare", "pool", "zeros"),
    "gives": (
        *("fewer", "preempted", "discards", "forgotten", "runs", "moved", "pool", "evicted"),
        *("last", "keeps_one_request", "not_without_need", "grows", "zeros", "in_front"),
    ),
    "steps": ("order", "served", "replaced", "preempted", "passes_on"),
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run all in one program."""
    return run_program("engine_cache", settings=("--backed", "--capacity", "1GiB"))


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True
