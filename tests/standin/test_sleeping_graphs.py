"""Graphs, graph trees and pools in regions that sleep and wake, with real bytes."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
from tests.standin.running import Outcome, run_program

from gmlake.standin.launcher import find_library

SETTINGS = ("--devices", "2", "--backed", "--capacity", "1GiB")
TRUTHS = {
    "tree": (
        "in_region",
        "replayed",
        "results_survive",
        "same_addresses",
        "replays_after_waking",
        "outside_while_asleep",
        "outside_is_outside",
        "all_survive",
        "recorded_again",
        "more_survive",
        "called_outside",
        "tree_ended",
    ),
    "pools": (
        "in_region",
        "where_it_is_made",
        "counted",
        "shown",
        "released",
        "contents",
        "addresses",
        "trimmed",
        "after_its_end",
        "as_before",
    ),
    "graph_and_pool": (
        "only_the_rest_sleeps",
        "replayed_meanwhile",
        "contents",
        "holds_the_other",
        "survives",
    ),
    "put_back": ("ended", "as_it_was", "survives"),
    "turns": ("shared", "survive", "addresses", "replayed", "apart", "without_the_largest"),
    "ended": ("other_survives", "result_survives"),
    "failing": ("failed", "contents"),
    "parted": ("failed", "kept", "survives"),
    "unsplit": ("whole", "survives"),
}
COMPILED = ("pool_is_the_regions", "parameters", "result", "addresses", "outside")

HAS_COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))
HAS_HEADERS = Path(sysconfig.get_path("include"), "Python.h").exists()


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_program("sleeping_graphs", settings=SETTINGS)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Train in mode="reduce-overhead", compiling anew."""
    if not (HAS_COMPILER and HAS_HEADERS):
        pytest.skip("Triton builds its launcher with a C compiler and the headers of Python")
    folder = tmp_path_factory.mktemp("compiled")
    return run_program(
        "sleeping_compiled",
        settings=SETTINGS,
        variables={
            "TRITON_LIBCUDA_PATH": str(find_library().parent),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        },
    )


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


@pytest.mark.long
@pytest.mark.parametrize("everywhere", ["False", "True"])
@pytest.mark.parametrize("name", COMPILED)
def test_reduce_overhead_sleeps(compiled: Outcome, everywhere: str, name: str) -> None:
    assert compiled.results[everywhere][name] is True


@pytest.mark.long
@pytest.mark.parametrize("everywhere", ["False", "True"])
def test_waking_records_and_allocates_nothing(compiled: Outcome, everywhere: str) -> None:
    results = compiled.results[everywhere]
    assert results["launches"] == 2  # forward and backward
    assert results["recorded_again"] == 0
    assert results["memory_calls"] == {}
    assert results["given_back"] == 0


@pytest.mark.long
def test_no_rule_was_broken_by_compiled_steps(compiled: Outcome) -> None:
    assert compiled.code == 0, compiled.errors
