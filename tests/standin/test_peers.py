"""Copies from other devices into gmlake's memory, in one process and from another one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run_benchmark

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def transports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run what benchmarks run on several GPUs, without NCCL."""
    folder: Path = tmp_path_factory.mktemp("transports")
    ended = run_benchmark(
        *("gpu.transports", folder, "--backend", "gloo", "--ranks", "3", "--output", "told.json"),
        settings=("--backed", "--devices", "3", "--capacity", "1GiB"),
    )
    assert ended.code == 0, ended.output
    return json.loads((folder / "told.json").read_text(encoding="utf-8"))


@pytest.mark.long
@pytest.mark.parametrize("rank", ["rank 0", "rank 1", "rank 2"])
def test_each_process_reads_the_others_memory_through_its_own_device(
    transports: Any, rank: str
) -> None:
    assert transports["ranks"][rank]["opened"] == {"exportable": True, "stitched": True}
