"""torch_memory_saver's interface, vLLM's and SGLang's plugins, over gmlake's regions."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "saver": (
        *("enabled", "saved", "shown", "not_saved", "others_stay"),
        *("weights", "replayed", "addresses", "gone"),
    ),
    "retained": ("kept", "kept_until_next", "refreshed", "no_more"),
    "returned": ("contents", "returned"),
    "library": ("outside", "inside", "nested", "again", "over", "stepped_out", "paused"),
    "margin": ("refused", "served", "shown"),
    "sglang": ("left_alone", "found", "no_error", "weights"),
    "vllm": (
        *("left_alone", "registered", "supported", "empty", "usage", "freed", "weights"),
        *("idle_goes", "state", "cache_sleeps", "cache", "state_again", "graph", "older"),
    ),
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run all in one program."""
    return run_program("compatible", settings=("--backed", "--capacity", "1GiB"))


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


def test_a_backup_on_disk_is_refused(outcome: Outcome) -> None:
    for asked in ("disk", "folder"):
        assert "gmlake has no disk backup" in outcome.results["saver"][asked]


@pytest.fixture(scope="module")
def from_environment() -> Outcome:
    """Run it where the environment says in what threads allocate."""
    variables = {
        "TMS_INIT_ENABLE": "1",
        "TMS_INIT_ENABLE_CPU_BACKUP": "true",
        "TMS_INIT_CPU_BACKUP_BACKEND": "mmap",
        "TMS_RETAIN_CPU_BACKUP": "yes",
    }
    settings = ("--backed", "--capacity", "1GiB")
    return run_program("compatible", "environment", settings=settings, variables=variables)


@pytest.mark.parametrize(
    "name", ["first", "gradient", "nested", "again", "retains", "library", "saved"]
)
def test_the_environment_is_heard(from_environment: Outcome, name: str) -> None:
    assert from_environment.code == 0, from_environment.errors
    assert from_environment.results[name] is True
