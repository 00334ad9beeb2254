"""`gmlake run --record FOLDER/`: what each rank leaves, however it ends, and what is reported."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.standin.gmlake_run import RUN, TORCHRUN, Ended, run
from tests.standin.test_run_recording import without_gpu

from gmlake.jobs.folder import read_folder
from gmlake.jobs.report import report_of
from gmlake.jobs.summary import ENDED, MOST_REFUSALS, RAISED, RUNNING

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.jobs.report import JobReport
    from gmlake.jobs.summary import Summary

MIB = 1 << 20
TWO = ("--devices", "2", "--capacity", "1GiB")

TRAIN = """
import os, signal, sys, time
import torch

rank = int(os.environ.get("RANK", "0"))
torch.cuda.set_device(rank)
weights = torch.nn.Parameter(torch.empty(8 << 20, device="cuda"))
sgd = torch.optim.SGD([weights], lr=0.1, momentum=0.9)

def act(mebibytes):
    return torch.empty(mebibytes << 20, dtype=torch.uint8, device="cuda")

def step(mebibytes):
    kept = act(mebibytes)
    weights.grad = torch.zeros_like(weights)
    sgd.step()
    sgd.zero_grad()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ranks"


def record(
    folder: Path, code: str, *words: str, options: tuple[str, ...] = (), ranks: int = 1
) -> Ended:
    """Run a program that begins like TRAIN, with --record FOLDER/, in one rank or two."""
    script = folder.with_name("train.py")
    script.write_text(TRAIN + code, encoding="utf-8")
    launch = (*TORCHRUN, *words) if ranks > 1 else ()
    return run(*RUN, "--record", f"{folder}/", *options, *launch, str(script), settings=TWO)


def reported(folder: Path) -> JobReport:
    return report_of(read_folder(folder))


def ranks_of(folder: Path) -> list[Summary]:
    return list(reported(folder).job.ranks)


REFUSED = """
if rank == 1:
    torch.cuda.set_per_process_memory_fraction(0.25)
for number in range(10):
    step(32 + 16 * number * rank)
if rank == 0:
    time.sleep(900)  # until it is ended
"""


@pytest.mark.long
@pytest.mark.parametrize("policy", ["stitch", "caching", "expandable"])
def test_the_rank_that_was_refused_is_named_with_its_line(policy: str, folder: Path) -> None:
    ended = record(folder, REFUSED, options=("--policy", policy), ranks=2)
    assert ended.code != 0
    made = reported(folder)
    ((rank, refusal), *_) = made.refusals
    assert (rank.rank, rank.state) == (1, RAISED)
    assert rank.error.startswith("OutOfMemoryError: CUDA out of memory")
    assert rank.policy == f"gmlake ({policy})"
    assert rank.devices[0].limit_bytes == 256 * MIB
    assert refusal.live_bytes <= refusal.reserved_bytes <= 256 * MIB
    assert refusal.step == rank.steps
    assert made.lines.name(refusal.frame).startswith("train.py:")
    (difference,) = made.differences
    assert (difference.line, difference.odd) == ("train.py:11 in act()", ("rank 1",))
    assert difference.most_bytes == 32 * MIB
    assert [(one.rank, one.steps) for one in made.job.cut_off] == [(0, 8)]
    assert "cut off: rank 0, after step 8 or later" in str(made)


@pytest.mark.long
def test_what_the_program_has_set_itself_is_recorded(folder: Path) -> None:
    own = "gmlake.disable(); gmlake.enable('expandable', capacity='640MiB', share='device')"
    code = TRAIN.replace("import torch\n", f"import gmlake, torch\n{own}\n", 1) + "step(100)\n"
    folder.with_name("train.py").write_text(code)
    train = str(folder.with_name("train.py"))
    ended = run(*RUN, "--record", f"{folder}/", train, settings=TWO)
    assert ended.code == 0, ended.errors
    (rank,) = ranks_of(folder)
    assert (rank.policy, rank.devices[0].limit_bytes) == ("gmlake (expandable)", 640 * MIB)
    capacity = f"GMLAKE_CAPACITY={640 * MIB}"
    assert rank.settings == f"{capacity} GMLAKE_SHARE=device,priority=0,weight=1"


@pytest.mark.long
def test_pytorchs_own_allocator_is_recorded_too(folder: Path) -> None:
    code = "import gmlake\ngmlake.disable()\nfor number in range(3):\n    step(100)\n"
    script = TRAIN.replace("import torch\n", "import torch\n" + code.partition("\nfor")[0] + "\n")
    folder.with_name("train.py").write_text(script + code.partition("disable()\n")[2])
    train = str(folder.with_name("train.py"))
    ended = run(*RUN, "--record", f"{folder}/", train, settings=TWO)
    assert ended.code == 0, ended.errors
    (rank,) = ranks_of(folder)
    assert rank.policy == "PyTorch (native)"
    (device,) = rank.devices
    assert device.live_bytes == (32 * 3 + 100) * MIB
    held: Counter[str] = Counter()
    for line in device.lines:
        held[line.frame.partition("  ")[0]] += line.size_bytes
    assert held == {"act": 100 * MIB, "<module>": 32 * MIB, "step": 64 * MIB}


def test_peaks_and_lines_are_those_of_each_step(folder: Path) -> None:
    ended = record(folder, "for size in (10, 90, 40, 20):\n    step(size)\n")
    assert ended.code == 0, ended.errors
    (rank,) = ranks_of(folder)
    (device,) = rank.devices
    assert (rank.steps, rank.state, rank.error) == (4, ENDED, "")
    # What lives as a step ends lives as the next one begins.
    assert [size // MIB for size in device.curve.live] == [106, 186, 186, 136]
    assert device.live_bytes == device.lines_bytes == 186 * MIB
    assert sum(line.size_bytes for line in device.lines) == device.lines_bytes
    assert device.live_bytes <= device.reserved_bytes <= device.used_bytes <= device.total_bytes
    assert (rank.rank, rank.local_rank, rank.world) == (-1, -1, 1)
    (file,) = folder.iterdir()
    assert file.stat().st_size < 50 << 10
    assert f"gmlake report {folder}" in ended.errors


PEAKS = """
import json
seen = []
for number, size in enumerate((60, 20, 30, 10, 50, 5)):
    step(size)
    figures = torch.cuda.memory_stats()
    seen.append([torch.cuda.max_memory_allocated(), torch.accelerator.max_memory_allocated()])
    seen.append([figures[name] for name in figures if name.endswith(".peak")])
    if number in (1, 3):
        step(70)
        torch.cuda.reset_peak_memory_stats()
        act(80 + number)
    if number == 4:
        torch.accelerator.reset_peak_memory_stats()
print(json.dumps({"seen": seen}))
"""


@pytest.mark.long
@pytest.mark.parametrize("policy", ["stitch", "caching"])
def test_the_program_reads_the_peaks_that_it_would_read_without(policy: str, folder: Path) -> None:
    seen = record(folder, PEAKS, options=("--policy", policy)).result
    assert any(max(each) > min(each) for each in seen["seen"])
    script = str(folder.with_name("train.py"))
    assert run(*RUN, "--policy", policy, script, settings=TWO).result == seen
    live = ranks_of(folder)[0].devices[0].curve.live
    # What a program resets in the middle of a step is not lost.
    assert [size // MIB for size in live] == [156, 156, 166, 166, 126, 166, 166, 146]


# ---- ends


@pytest.mark.long
@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize(
    ("code", "state", "error"),
    [
        ("sys.exit(3)", ENDED, ""),
        ("raise ValueError('two\\nlines')", RAISED, "ValueError: two"),
        ("os.kill(os.getpid(), signal.SIGKILL)", RUNNING, ""),
        ("os.kill(os.getpid(), signal.SIGTERM)", RUNNING, ""),
        ("os.kill(os.getpid(), signal.SIGINT)", RAISED, "KeyboardInterrupt: "),
    ],
)
def test_every_end_leaves_a_file(code: str, state: str, error: str, folder: Path) -> None:
    record(folder, f"for number in range(5):\n    step(30)\n{code}\n")
    (rank,) = ranks_of(folder)
    assert (rank.state, rank.error) == (state, error)
    assert rank.steps == (4 if state == RUNNING else 5)
    assert rank.devices[0].live_bytes == 126 * MIB


@pytest.mark.long
def test_a_process_that_dies_before_its_first_step_has_a_file(folder: Path) -> None:
    record(folder, f"act(30)\nos.kill(os.getpid(), {int(signal.SIGKILL)})\n")
    (rank,) = ranks_of(folder)
    assert (rank.state, rank.steps) == (RUNNING, 0)
    assert "after step 0 or later" in str(reported(folder))


@pytest.mark.long
def test_refusals_that_are_caught_are_counted_and_a_few_described(folder: Path) -> None:
    code = """
for number in range(12):
    try:
        act(5000 + 2 * number)
    except torch.OutOfMemoryError:
        pass
    step(30)
"""
    assert record(folder, code).code == 0
    (rank,) = ranks_of(folder)
    assert rank.devices[0].refused == 12
    assert len(rank.refusals) == MOST_REFUSALS
    sizes = [(one.step, one.size_bytes // MIB) for one in rank.refusals]
    assert sizes == [(number, 5000 + 2 * number) for number in range(MOST_REFUSALS)]
    assert all(one.frame.startswith("act  ") for one in rank.refusals)


@pytest.mark.long
def test_ranks_that_torchrun_starts_again_are_another_job(folder: Path) -> None:
    code = """
step(30)
if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(1)
"""
    assert record(folder, code, "--max-restarts", "1", ranks=2).code == 0
    found = read_folder(folder)
    assert [job.ranks[0].restart for job in found.jobs] == [0, 1]
    assert [one.rank for one in found.jobs[-1].ranks] == [0, 1]
    assert [one.state for one in found.jobs[-1].ranks] == [ENDED, ENDED]


@pytest.mark.long
def test_a_folder_that_cannot_be_written_is_one_line_and_the_program_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    script = tmp_path / "train.py"
    script.write_text(TRAIN + "for number in range(5):\n    step(30)\nprint('done')\nsys.exit(3)")
    ended = run(*RUN, "--record", f"{tmp_path}/file/in/", str(script), settings=TWO)
    assert (ended.code, ended.output) == (3, "done\n")
    assert ended.errors.count("the memory of this process is not recorded: ") == 1
    assert ended.errors.count("\n") == 1


@pytest.mark.long
def test_a_program_without_cuda_and_a_child_by_fork_leave_nothing(folder: Path) -> None:
    run(*RUN, "--record", f"{folder}/", "-c", "import torch; torch.zeros(1)", settings=TWO)
    assert not folder.exists()
    code = "act(10)\nif not os.fork():\n    sys.exit()\nos.wait()\n"
    assert record(folder, code).errors.count("is recorded") <= 1
    (rank,) = ranks_of(folder)
    assert rank.state == ENDED


@pytest.mark.long
def test_steps_of_a_child_by_fork_are_not_the_parents(folder: Path) -> None:
    code = """
act(10)
on_host = torch.nn.Parameter(torch.zeros(10))
on_host.grad = torch.zeros(10)
host = torch.optim.SGD([on_host], lr=0.1)
host.step()
child = os.fork()
if not child:
    for _ in range(4):
        host.step()
    os._exit(0)
os.waitpid(child, 0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert "is not recorded" not in record(folder, code).errors
    assert [(one.state, one.steps) for one in ranks_of(folder)] == [(RUNNING, 1)]


@pytest.mark.long
def test_a_spawned_process_has_a_file_of_its_own(folder: Path) -> None:
    script = folder.with_name("work.py")
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(number):\n    torch.empty(1 << 20, device='cuda')\n"
        "if __name__ == '__main__':\n    mp.spawn(work, nprocs=2)\n"
    )
    run(*RUN, "--record", f"{folder}/", str(script), settings=TWO)
    assert [one.state for one in ranks_of(folder)] == [ENDED, ENDED]


# ---- bounds, and what belongs to the program


@pytest.mark.long
def test_events_and_steps_are_bounded(folder: Path) -> None:
    code = """
import json
for number in range(3000):
    step(30)
for _ in range(60_000):
    torch.empty(1, device="cuda")
events = torch.cuda.memory._snapshot()["device_traces"][0]
print(json.dumps({"events": len(events)}))
"""
    ended = record(folder, code)
    assert 40_000 < ended.result["events"] <= 50_001
    (file,) = folder.iterdir()
    assert file.stat().st_size < 50 << 10
    (rank,) = ranks_of(folder)
    assert rank.steps == 3000
    assert rank.devices[0].curve.each == 16


@pytest.mark.long
def test_a_history_of_the_programs_own_goes_on(folder: Path) -> None:
    code = """
import json
torch.cuda.memory._record_memory_history(max_entries=7)
for number in range(5):
    step(30 + 10 * number)
events = torch.cuda.memory._snapshot()["device_traces"][0]
print(json.dumps({"events": len(events)}))
"""
    assert record(folder, code).result == {"events": 7}
    assert ranks_of(folder)[0].devices[0].live_bytes == (96 + 70) * MIB


@pytest.mark.long
def test_several_optimizers_take_one_step(folder: Path) -> None:
    code = """
other = torch.optim.SGD([torch.nn.Parameter(torch.empty(10, device="cuda"))], lr=0.1)
for number in range(6):
    step(30)
    other.step()
"""
    record(folder, code)
    assert ranks_of(folder)[0].steps == 6


@pytest.mark.long
def test_it_works_without_a_gpu(folder: Path) -> None:
    script = folder.with_name("train.py")
    script.write_text(f"{TRAIN}for number in range(3):\n    step(30)\n")
    folder.mkdir()
    done = without_gpu("--record", folder, script)
    assert done.returncode == 0, done.stderr
    (rank,) = ranks_of(folder)
    assert (rank.steps, rank.devices[0].live_bytes) == (3, 126 * MIB)
    assert "no GPU" in rank.devices[0].name
