"""The loop of training, sleeping and generating that benchmarks run on GPUs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run_benchmark

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=[1, 2])
def figures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run it with that many processes, two of them under FSDP2."""
    folder: Path = tmp_path_factory.mktemp("loop")
    ended = run_benchmark(
        *("gpu.loop", folder, "--size", "tiny", "--rounds", "25", "--backend", "gloo"),
        *("--ranks", str(request.param), "--output", "loop.json"),
        settings=("--backed", "--devices", "2", "--capacity", "1GiB"),
    )
    # The exit code tells of losses and tokens, which kernels that compute nothing leave to chance.
    told = json.loads((folder / "loop.json").read_text(encoding="utf-8"))
    assert not [way for way in told["ways"].values() if "failed" in way], ended.output
    return told


@pytest.mark.long
def test_nothing_more_is_held_after_many_rounds(figures: Any) -> None:
    assert figures["grown_bytes"] == 0
    assert len(figures["ways"]["sleeps"]["asleep_bytes"]) == 25


@pytest.mark.long
def test_less_is_held_than_without_sleep(figures: Any) -> None:
    ways = figures["ways"]
    assert max(ways["sleeps"]["asleep_bytes"]) < min(ways["never"]["asleep_bytes"])
