"""What only a real device can show: how its driver behaves, and what PyTorch computes there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import gmlake
from gmlake.lake import device_describe
from places import ROOT

PROGRAMS = ROOT / "build" / "c" / "tests" / "c"

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "name",
    ["test_driver_memory", "test_driver_calls", "test_driver_cuda", "test_driver_cuda_peers"],
)
def test_the_driver_behaves_as_the_core_relies_on(name: str) -> None:
    program = PROGRAMS / name
    if not program.exists():
        pytest.skip(f"{program} is not built: run `make test-c`")
    environment = os.environ | {"GMLAKE_TEST_CUDA": "1"}
    done = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_lake_serves_and_gives_everything_back(policy: str) -> None:
    before = device_describe("cuda")["free_bytes"]
    with gmlake.Lake("cuda", policy, capacity="2GiB") as lake:
        blocks = [lake.allocate((i + 1) * 3_000_000) for i in range(20)]
        for block in blocks[::2]:
            lake.free(block)
        wide = lake.allocate(64 << 20)
        lake.check()
        for block in [*blocks[1::2], wide]:
            lake.free(block)
        lake.trim()
        assert lake.stats()["reserved_bytes"] == 0
    assert device_describe("cuda")["free_bytes"] >= before - (64 << 20)


# ---- PyTorch -------------------------------------------------------------------------------------


@cache
def answers(way: str) -> dict[str, dict[str, Any]]:
    """Return what tests/python/gpu/on_gpu.py says under one allocator."""
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environment.pop(name, None)
    command = [sys.executable, str(Path(__file__).with_name("on_gpu.py")), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    told: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return told


def answer(way: str, scenario: str) -> dict[str, Any]:
    told = answers(way)[scenario]
    assert "raised" not in told, told["raised"]
    return told


@pytest.mark.torch
def test_training_has_the_same_losses_and_weights_bit_for_bit() -> None:
    expected, seen = answer("default", "training"), answer("gmlake", "training")
    assert seen["losses"] == expected["losses"]
    assert seen["weights"] == expected["weights"]
    assert len(set(expected["losses"])) == len(expected["losses"])


@pytest.mark.torch
def test_a_tensor_in_scattered_memory_computes_the_same_bit_for_bit() -> None:
    expected, seen = answer("default", "stitched"), answer("gmlake", "stitched")
    for what in ("loss", "values", "gradient", "neighbours"):
        assert seen[what] == expected[what]
    assert seen["neighbours"]


@pytest.mark.torch
def test_that_tensor_was_stitched_and_took_no_new_memory() -> None:
    seen = answer("gmlake", "stitched")
    assert seen["states"]["stitch"] >= 1
    assert seen["grown_bytes"] < seen["tensor_bytes"] / 10
    assert answer("default", "stitched")["grown_bytes"] >= seen["tensor_bytes"]


@pytest.mark.torch
def test_memory_can_run_out_and_the_next_step_succeeds() -> None:
    expected, seen = answer("default", "out_of_memory"), answer("gmlake", "out_of_memory")
    assert "out of memory" in seen["message"]
    assert seen["share_taken"] >= expected["share_taken"] - 0.06
    assert seen["losses"] == expected["losses"]


@pytest.mark.torch
def test_what_another_stream_reads_is_not_given_away() -> None:
    assert all(answer("gmlake", "streams")["unharmed"])


@pytest.mark.torch
def test_a_captured_step_replays_beside_other_memory() -> None:
    seen = answer("gmlake", "graphs")
    assert seen["unharmed"]
    assert seen["replayed"] == answer("default", "graphs")["replayed"]
    replayed, eager = ([float.fromhex(loss) for loss in seen[how]] for how in ("replayed", "eager"))
    assert replayed == pytest.approx(eager, rel=1e-5)


@pytest.mark.torch
def test_emptying_the_cache_gives_memory_back() -> None:
    seen = answer("gmlake", "trimming")
    assert seen["taken_bytes"] >= (2 << 30) - (64 << 20)  # what is idle may serve a part
    assert seen["freed_bytes"] == 2 << 30
    assert seen["missing_bytes"] <= 64 << 20


@pytest.mark.torch
def test_statistics_are_answered() -> None:
    seen = answer("gmlake", "statistics")
    assert seen["allocated_bytes"] == seen["peak_bytes"] == 10 << 20
    assert seen["has_reserved"]
    assert seen["has_summary"]
    assert seen["segments"]


@pytest.mark.torch
def test_cudnn_may_try_its_algorithms() -> None:
    assert answer("gmlake", "convolutions")["close"]


@pytest.mark.torch
def test_devices_copy_to_each_other() -> None:
    seen = answer("gmlake", "peers")
    if seen["devices"] < 2:
        pytest.skip("there is one GPU")
    assert seen["same"]
