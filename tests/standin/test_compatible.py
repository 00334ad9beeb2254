"""torch_memory_saver's interface and vLLM's plugin, over gmlake's regions."""

from __future__ import annotations

import importlib.metadata

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "saver": (
        *("enabled", "saved", "shown", "not_saved", "others_stay"),
        *("weights", "disk", "replayed", "addresses", "gone"),
    ),
    "vllm": (
        *("left_alone", "registered", "supported", "empty", "usage", "freed", "weights"),
        *("state", "cache_sleeps", "cache", "state_again", "graph"),
    ),
}
ERRORS = {
    "twice": "ValueError: tag 'weights' is paused already",
    "not_paused": "ValueError: tag 'weights' is not paused",
    "both": "ValueError: enable_cpu_backup and enable_disk_backup exclude each other",
    "backend": "ValueError: cpu_backup_backend requires enable_cpu_backup=True",
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run both in one program."""
    return run_program("compatible", settings=("--backed", "--capacity", "1GiB"))


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_is_wrong(outcome: Outcome, name: str) -> None:
    assert outcome.results["saver"][name] == ERRORS[name]


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors


def test_vllm_finds_the_plugin() -> None:
    found = importlib.metadata.entry_points(group="vllm.general_plugins", name="gmlake")
    assert [each.value for each in found] == ["gmlake.compat.vllm:register"]
