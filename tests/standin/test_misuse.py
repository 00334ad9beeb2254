"""Planted faults are found: each is said on standard error, and changes the exit code."""

from __future__ import annotations

from itertools import takewhile

import pytest
from tests.standin.running import Outcome, run_program

from gmlake.standin.launcher import MISUSE_EXIT

# What is planted, and what the stand-in says of it.
FAULTS = {
    "copy_to_freed_memory": ("cudaMemcpy:", "memory of the device", "is not"),
    "copy_between_tensors_of_which_one_is_freed": ("cudaMemcpyAsync",),
    "map_twice": ("map", "is mapped already"),
    "unmap_while_a_copy_is_pending": ("cuMemUnmap", "while cudaMemcpyAsync is pending"),
    "unmap_what_is_not_mapped": ("unmap", "nothing is mapped"),
    "give_mapped_addresses_back": ("unreserve", "still mapped"),
    "product_over_unmapped_memory": ("cublasSgemm_v2 touches", "where nothing is mapped"),
    "product_over_freed_memory": ("cublasSgemm_v2 touches", "memory of no device"),
    "convolution_over_unmapped_memory": ("cudnnBackendExecute touches", "where nothing is mapped"),
    "use_without_access": ("cudaMemsetAsync touches", "access was never set"),
    "free_twice": ("free", "freed before, or never allocated"),
    "replay_without_memory": ("touches", "where nothing is mapped"),
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Plant them all, in one program."""
    return run_program("faults", settings=("--devices", "1", "--capacity", "8GiB"))


def lines_of(outcome: Outcome, fault: str) -> list[str]:
    """Return what the stand-in said between two marks of the program."""
    lines = outcome.errors.splitlines()
    after = lines[lines.index(f"-- {fault}") + 1 :]
    said = takewhile(lambda line: not line.startswith("-- "), after)
    return [line for line in said if line.startswith("gmlake stand-in: misuse: ")]


def test_the_exit_code_tells_of_them(outcome: Outcome) -> None:
    assert outcome.code == MISUSE_EXIT


def test_the_program_planted_them_all(outcome: Outcome) -> None:
    assert outcome.results.keys() == FAULTS.keys() | {"nothing", "nothing_at_the_end"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(outcome: Outcome, fault: str) -> None:
    said = lines_of(outcome, fault)
    # What was done to memory that is gone may be found again when something uses it.
    assert outcome.results[fault] == len(said) >= 1
    for word in FAULTS[fault]:
        assert word in said[0]


@pytest.mark.parametrize("name", ["nothing", "nothing_at_the_end"])
def test_what_follows_the_rules_is_not_called_a_fault(outcome: Outcome, name: str) -> None:
    assert outcome.results[name] == 0
    assert lines_of(outcome, name) == []
