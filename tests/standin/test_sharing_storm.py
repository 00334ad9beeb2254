"""Processes that share a device, at random, while others are killed, stopped and sent nonsense."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.standin.running import finish_program, start_program

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = int(os.environ.get("GMLAKE_STRESS_SECONDS", "40"))


@pytest.mark.long
def test_contents_stay_and_nothing_is_left(tmp_path: Path) -> None:
    """How long requests took is told, not judged: the machine may be busy."""
    started = start_program(
        *("sharing_storm", os.environ.get("GMLAKE_STRESS_SEED", "1"), str(SECONDS)),
        settings=("--backed", "--capacity", "4GiB", "--shared", str(tmp_path / "devices")),
        variables={"XDG_RUNTIME_DIR": str(tmp_path)},
        own_process=True,
    )
    seen = finish_program(started, SECONDS + 300)
    print(seen.results)
    assert (seen.results["wrong"], seen.results["misuses"]) == ([], 0), seen.errors
    assert seen.results["requests"] > 0
    assert seen.results["taken_bytes"] > 0
    assert seen.results["free"] > 0.97
    assert (seen.results["files"], seen.results["names"]) == ([], [])
