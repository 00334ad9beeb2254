"""What only a real device can show: the behaviour that docs/driver.md lists."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import gmlake

PROGRAMS = Path(__file__).resolve().parents[2] / "build" / "c" / "tests" / "c"

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def device() -> None:
    try:
        gmlake.device_describe("cuda")
    except gmlake.Error as error:
        pytest.skip(f"no CUDA device: {error}")


@pytest.mark.parametrize("name", ["test_driver_memory", "test_driver_calls", "test_driver_cuda"])
def test_the_driver_behaves_as_the_core_relies_on(name: str) -> None:
    program = PROGRAMS / name
    if not program.exists():
        pytest.skip(f"{program} is not built: run `make test-c`")
    environment = os.environ | {"GMLAKE_TEST_CUDA": "1"}
    done = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("policy", ["caching", "expandable", "gmlake-paper", "stitch"])
def test_a_lake_serves_and_gives_everything_back(policy: str) -> None:
    before = gmlake.device_describe("cuda")["free_bytes"]
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
    assert gmlake.device_describe("cuda")["free_bytes"] >= before - (64 << 20)
