"""`gmlake run --record`, on a device that is there and on the stand-in of `--without-gpu`."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.standin import forecasting
from tests.standin.forecasting import TRAIN
from tests.standin.gmlake_run import RUN, TORCHRUN, run as run_on_standin

import gmlake
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from gmlake.trace import Trace

MIB = 1 << 20
LABEL = "NVIDIA GeForce RTX 4090 (gmlake stand-in, no GPU)"

SCRIPT = """
import json, sys, torch
def hold():
    return [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
kept = hold()
del kept[0]
print(json.dumps({"device": torch.cuda.get_device_name(), "peak": torch.cuda.max_memory_allocated(),
                  "total": torch.cuda.mem_get_info()[1]}))
sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def without_gpu(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a user does, who has no GPU and knows nothing of the stand-in."""
    return forecasting.run("run", "--without-gpu", "--on", "rtx-4090", *words)


def sizes(trace: Trace) -> Counter[int]:
    """Return how often each size was asked for."""
    requests = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    return Counter(requests["size_bytes"].tolist())


@pytest.mark.long
def test_what_frees_memory_is_not_looked_for(script: Path) -> None:
    """Some checkpointing breaks while that is done: a free has the line of its request."""
    file = script.with_name("memory.pickle")
    assert without_gpu("--record", file, script).returncode == 3
    seen = gmlake.load(file)[0]
    asked, freed = (
        set(seen.event_sites[seen.events["kind"] == kind].tolist())
        for kind in (Kind.ALLOC, Kind.FREE_REQUESTED)
    )
    assert freed
    assert freed <= asked


@pytest.mark.long
def test_what_is_printed_and_the_recording_say_that_no_gpu_was_there(script: Path) -> None:
    file = script.with_name("memory.pickle")
    done = without_gpu("--record", file, script)
    assert done.stderr.splitlines() == [
        f"gmlake: no GPU is there: nothing is computed on {LABEL}",
        f"gmlake: the memory of {LABEL} is recorded: gmlake view {file}",
    ]
    assert gmlake.load(file).devices[0].trace.device_name == LABEL
    assert ("device", LABEL) in gmlake.load(file).report().facts


@pytest.mark.long
def test_every_step_of_a_training_is_recorded(tmp_path: Path) -> None:
    """Where a forecast ends it after the fifth, as they are alike."""
    counts = []
    for steps in (6, 12):
        file = tmp_path / f"{steps}.pickle"
        done = without_gpu("--record", file, TRAIN, "--iterations", str(steps))
        assert done.returncode == 0, done.stderr
        assert f"trained {steps}" in done.stdout
        counts.append(sizes(gmlake.load(file).devices[0].trace))
    more = counts[1] - counts[0]
    assert more.total() > 0
    assert all(count % 6 == 0 for count in more.values())


@pytest.mark.long
def test_an_earlier_recording_is_kept_and_each_rank_has_its_own(script: Path) -> None:
    file = script.with_name("memory.pickle")
    file.write_text("earlier")
    words = (*TORCHRUN, *RUN, "--record", str(file), str(script))
    ended = run_on_standin(*words, settings=("--devices", "1", "--capacity", "1GiB"))
    files = sorted(set(re.findall(r"gmlake view (\S+)", ended.errors)))
    assert files == [str(file.with_name(f"memory-rank{rank}.pickle")) for rank in (0, 1)]
    assert [sizes(gmlake.load(each).devices[0].trace) for each in files] == [{3 * MIB: 5}] * 2
    assert file.read_text() == "earlier"
    single = without_gpu("--record", file, script)
    (other,) = re.findall(r"gmlake view (\S+)", single.stderr)
    assert re.fullmatch(r"memory-\d+\.pickle", other.rpartition("/")[2])
    assert file.read_text() == "earlier"


@pytest.mark.long
def test_a_program_without_cuda_and_a_child_by_fork_write_nothing(tmp_path: Path) -> None:
    file = tmp_path / "memory.pickle"
    done = without_gpu("--record", file, "-c", "import torch; torch.zeros(1)")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    code = "import os, sys, torch\ntorch.zeros(1, device='cuda')\nif not os.fork(): sys.exit()\n"
    done = without_gpu("--record", file, "-c", f"{code}os.wait()")
    assert done.stderr.count("is recorded") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["memory.pickle"]


@pytest.mark.long
def test_regions_are_told_apart_by_name_and_what_slept_is_not_free(tmp_path: Path) -> None:
    path, file = tmp_path / "engine.py", tmp_path / "engine.pickle"
    path.write_text(f"""
import gmlake, torch
def take(mib): return torch.empty(mib * {MIB}, device="cuda", dtype=torch.uint8)
outside = take(50)
with gmlake.region("cache"):
    cache = [take(100) for _ in range(2)]
with gmlake.region("weights"):
    weights = take(30)
gmlake.sleep("cache")
gmlake.wake("cache")
last = take(50)
""")
    ended = run_on_standin(*RUN, "--record", str(file), str(path))
    assert ended.code == 0, ended.errors
    (held,) = gmlake.query(file, "end", "pool").answers
    assert [(row.key, row.size_bytes) for row in held.rows] == [
        ("region 'cache'", 200 * MIB),
        ("outside of private pools", 100 * MIB),
        ("region 'weights'", 30 * MIB),
    ]
    assert held.state.held_bytes == held.state.live_bytes + (held.state.free_bytes or 0)
    assert (held.state.free_bytes or 0) <= 2 * MIB  # beside the random numbers
