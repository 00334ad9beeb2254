"""`gmlake forecast` as a user runs it: what it answers, when it ends a script, what it refuses."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.standin import forecasting
from tests.standin.accounting import rounded
from tests.standin.forecasting import TRAIN, forecast, needs, plain_variables, refused
from tests.standin.running import PROGRAMS

from gmlake.standin.devices import DEVICES
from gmlake.units import format_size

MIB = 1 << 20
PARAMETERS = 2 * (256 * 1024 * 4) + 1024 * 4 + 256 * 4
RANKS = PROGRAMS / "forecast_ranks.py"


@functools.cache
def training() -> dict[str, Any]:
    """Return what is said of the usual script: one optimizer, each step like the one before."""
    return forecast(TRAIN)


def script(folder: Path, text: str) -> Path:
    """Return a script of these lines, after the import of PyTorch."""
    path = folder / "script.py"
    path.write_text(f"import torch\n{text}", encoding="utf-8")
    return path


def seen_by(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# ---- the answer


def test_the_answer_is_two_sentences_a_table_and_what_it_rests_on() -> None:
    done = forecasting.run("forecast", TRAIN)
    found = training()
    need, live = needs(found, "needed_bytes"), format_size(found["peak_live_bytes"])
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert not done.stderr
    assert lines[0] == (
        f"peak {live} live; needs {format_size(need['caching'])} with PyTorch's default, "
        f"{format_size(need['expandable'])} with expandable segments, "
        f"{format_size(need['stitch'])} with gmlake"
    )
    assert lines[1] == "fits NVIDIA H100 80GB HBM3 (79.2 GiB) with all of them (96% sure)"
    assert re.fullmatch(
        r"at the peak: .* of optimizer state, .* of parameters, .*; most is held by "
        r"forecast_train\.py:\d+ in main\(\): .*",
        lines[2],
    )
    rows = [re.split(r"\s{2,}", line) for line in lines]
    for of, name in zip(
        found["needs"], ("PyTorch's default", "expandable segments", "gmlake"), strict=True
    ):
        figures = (of["reserved_bytes"], of["smallest_bytes"], of["needed_bytes"])
        assert [name, *map(format_size, figures)] in rows
    assert (
        "foreseen from 5 steps of forecast_train.py (steps repeat; what comes after was not run: "
        "--to-end runs it) on a stand-in for the GPU" in lines[-2]
    )
    assert f"with PyTorch {found['torch']}; " in lines[-2]


@pytest.mark.long
def test_cuda_takes_what_was_measured_and_cublas_for_its_use(tmp_path: Path) -> None:
    without = forecast(script(tmp_path, "torch.ones(1000, device='cuda')"))
    assert without["beyond"]["libraries_bytes"] == 0
    assert training()["beyond"]["libraries_bytes"] == 146 * MIB
    for found in (without, training()):
        assert found["beyond"]["context_bytes"] + found["beyond"]["kernels_bytes"] == 621 * MIB
        assert found["beyond"]["communication_bytes"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "steps", "why"),
    [
        ((), 5, "steps repeat"),
        (("--accumulate", "4"), 5, "steps repeat"),
        (("--optimizers", "2"), 6, "steps repeat (every 2)"),
    ],
    ids=["plain", "passes add up", "optimizers take turns"],
)
def test_the_figures_of_pytorchs_default_are_those_of_the_run(
    words: tuple[str, ...], steps: int, why: str, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    found = forecast(TRAIN, "--seen", str(seen), *words)
    assert (found["steps"], found["why"], found["notes"]) == (steps, why, [])
    told = seen_by(seen)["steps"]
    assert len(told) == steps
    assert needs(found, "reserved_bytes")["caching"] == told[-1]["reserved"]
    assert found["peak_live_bytes"] == told[-1]["allocated"]


@pytest.mark.long
@pytest.mark.parametrize("size", ["700MiB", "512MiB"])  # the second is less than CUDA's own
def test_a_device_that_is_too_small_is_said_and_is_the_exit_code(size: str) -> None:
    done = forecasting.run("forecast", "--on", size, TRAIN)
    assert done.returncode == 1
    assert not done.stderr
    assert f"does not fit a GPU of {size} (" in done.stdout


@pytest.mark.long
def test_a_device_that_some_allocators_fit_on_is_enough() -> None:
    error = 300 * MIB  # of devices that were not measured
    need = {name: size + error for name, size in needs(training(), "needed_bytes").items()}
    most = max(need.values())
    assert len(set(need.values())) > 1
    done = forecasting.run("forecast", "--on", str(most - 1), TRAIN)
    assert done.returncode == 0
    assert re.search(
        r"fits a GPU of \d+ \(\S+ \S+\) with PyTorch's default and gmlake only", done.stdout
    )
    found = forecast("--on", str(most), TRAIN)
    assert all(need["fits"] for need in found["needs"])
    assert found["beyond"]["error_bytes"] == error
    assert found["device"]["memory_bytes"] == most
    assert found["device"]["label"] == f"a GPU of {most}"
    assert not found["device"]["is_checked"]


# ---- where a run ends


def test_a_run_ends_once_its_steps_repeat_and_the_optimizers_state_is_there() -> None:
    found = training()
    assert (found["steps"], found["why"]) == (5, "steps repeat")
    plain = forecast(TRAIN, "--plain")
    assert found["peak_live_bytes"] - plain["peak_live_bytes"] >= 2 * PARAMETERS
    one = forecast("--steps", "1", TRAIN)
    assert (one["steps"], one["why"]) == (1, "steps differ")


@pytest.mark.long
def test_a_run_whose_steps_differ_ends_where_told_and_says_so() -> None:
    eight = forecast(TRAIN, "--growing")
    four = forecast("--steps", "4", TRAIN, "--growing")
    assert (eight["steps"], eight["why"]) == (8, "steps differ")
    assert (four["steps"], four["why"]) == (4, "steps differ")
    assert four["unknown"] == ["each of the last 2 steps asked for more than the one before"]
    assert four["fits"] is None
    assert four["peak_live_bytes"] < eight["peak_live_bytes"]


@pytest.mark.long
def test_a_script_without_an_optimizer_runs_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    found = forecast(TRAIN, "--without-optimizer", "--iterations", "3", "--checkpoint", str(file))
    assert (found["steps"], found["why"]) == (0, "the program ended")
    assert found["notes"] == ["no optimizer made a step; all of the program was run"]
    assert file.exists()


@pytest.mark.long
def test_a_script_that_ends_before_its_steps_repeat_has_been_run_whole() -> None:
    found = forecast(TRAIN, "--iterations", "2")
    assert (found["steps"], found["why"], found["notes"]) == (2, "the program ended", [])


@pytest.mark.long
def test_what_a_script_does_after_its_training_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    done = forecasting.run("forecast", "--show-output", TRAIN, "--checkpoint", str(file))
    assert done.returncode == 0
    assert not file.exists()
    assert "trained" not in done.stderr


@pytest.mark.long
def test_what_a_script_prints_is_kept_back_or_passed_on_to_standard_error(tmp_path: Path) -> None:
    path = script(tmp_path, "print('epoch 1')\ntorch.ones(9, device='cuda')\n")
    quiet, loud = (forecasting.run("forecast", *words, path) for words in ((), ["--show-output"]))
    assert "epoch" not in quiet.stdout + quiet.stderr
    assert "epoch 1" in loud.stderr
    assert loud.stdout == quiet.stdout


# ---- batches


@pytest.mark.long
@pytest.mark.parametrize(
    ("ours", "words", "name", "recorded"),
    [
        (["--batch=--batch-size=64"], [], "--batch-size", [64, 128]),
        (["--batch", "batch-size=64"], ["--batch-size=7"], "--batch-size", [64, 128]),
        (["--batch", "BATCH=32,96"], [], "BATCH", [32, 96]),
        ([], ["--batch-size", "48"], "--batch-size", [48, 96]),
    ],
    ids=["added", "replaced", "variable", "found"],
)
def test_the_batch_is_an_option_of_the_script_or_a_variable(
    ours: list[str], words: list[str], name: str, recorded: list[int], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    # So small that no batch fits: a single one is the last that is run.
    found = forecast("--on", "900MiB", *ours, TRAIN, "--seen", str(seen), *words)
    assert found["batch"] == {
        "name": name,
        "given": recorded[0],
        "recorded": recorded,
        "confirmed": [1],
    }
    assert set(needs(found, "largest_batch").values()) == {0}
    assert seen_by(seen)["batch"] == 1


@pytest.mark.long
def test_no_batch_is_searched_where_none_is_wanted(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    found = forecast("--batch", "none", TRAIN, "--seen", str(seen), "--batch-size", "48")
    assert found["batch"] is None
    assert seen_by(seen)["batch"] == 48


@pytest.mark.long
def test_a_device_that_cuda_alone_fills_has_room_for_no_batch() -> None:
    done = forecasting.run("forecast", "--on", "1GiB", "--batch", "BATCH=64", TRAIN)
    assert done.returncode == 1, done.stderr
    assert "does not fit a GPU of 1GiB (1.00 GiB); the largest BATCH that fits: 0, 0, 0" in (
        done.stdout
    )


@pytest.mark.long
def test_a_batch_that_changes_nothing_is_refused() -> None:
    assert "both recordings need the same memory" in refused("--batch", "NOTHING=8", TRAIN)


def fits(batch: int, room: int) -> bool:
    """Whether the script runs on a device where PyTorch may have so many bytes."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gmlake.standin", "--capacity", str(room)),
            *(str(TRAIN), "--batch-size", str(batch), "--iterations", "6"),
        ],
        env=plain_variables(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0 or "OutOfMemoryError" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.long
def test_the_largest_batch_is_the_largest_that_runs() -> None:
    found = forecast("--on", "1300MiB", "--batch", "BATCH=64", TRAIN)
    room = found["device"]["memory_bytes"] - sum(found["beyond"].values())
    largest = needs(found, "largest_batch")["caching"]
    assert fits(largest, room)
    if f"a BATCH above {largest:,} may fit, too: the search ended there" in found["notes"]:
        largest += largest // 50
    assert not fits(largest + 1, room)


# ---- devices


@pytest.mark.long
def test_a_device_is_as_its_name_says(tmp_path: Path) -> None:
    of = DEVICES["a100-40gb"]
    seen = tmp_path / "seen"
    found = forecast("--on", "A100 40gb", TRAIN, "--iterations", "1", "--seen", str(seen))
    (step,) = seen_by(seen)["steps"]
    assert found["device"]["label"] == of.label
    assert step["name"] == f"{of.label} (gmlake stand-in, no GPU)"
    assert step["capacity"] == of.memory_bytes
    assert ".".join(map(str, step["capability"])) == of.capability
    assert step["devices"] == 1


@pytest.mark.long
def test_a_script_that_needs_more_than_the_device_has_is_run_all_the_same(tmp_path: Path) -> None:
    path = script(tmp_path, "x = torch.empty(200 << 30, dtype=torch.uint8, device='cuda')")
    found = forecast(path)
    assert found["peak_live_bytes"] == 200 << 30
    assert not found["fits"]


@pytest.mark.long
def test_a_script_that_uses_no_gpu_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "torch.ones(9)")
    assert refused(path) == ("gmlake: script.py used no GPU: it asked PyTorch for no CUDA memory\n")


@pytest.mark.long
def test_a_script_that_fails_before_it_uses_a_gpu_shows_how_it_ended(tmp_path: Path) -> None:
    said = refused(script(tmp_path, "print('reading')\nraise SystemExit('no data here')"))
    assert "script.py ended with exit code 1 before anything was recorded" in said
    assert "  reading\n" in said
    assert "no data here" in said


@pytest.mark.long
def test_a_script_that_reads_zeros_and_raises_gets_its_line_named(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "def scale(rows):\n    return 1 / rows.sum().item()\n\n"
        "scale(torch.empty(9, device='cuda'))\n",
    )
    said = refused(path)
    assert "script.py ended by 'ZeroDivisionError: float division by zero'" in said
    assert f"at {path}:3 in scale(), which has 'return 1 / rows.sum().item()'" in said
    assert "what is read from it is zeros" in said


@pytest.mark.long
def test_a_script_that_a_signal_ends_is_said_to_be(tmp_path: Path) -> None:
    ending = "os.kill(os.getpid(), 11)"
    said = refused(script(tmp_path, f"import os\ntorch.ones(9, device='cuda')\n{ending}"))
    assert "script.py was ended by SIGSEGV" in said


@pytest.mark.long
@pytest.mark.parametrize("ending", ["sys.exit('bad data')", "os._exit(1)"])
def test_a_script_that_gives_up_half_way_is_not_forecast(ending: str, tmp_path: Path) -> None:
    path = script(tmp_path, f"import os, sys\ntorch.ones(9, device='cuda')\n{ending}")
    assert "script.py ended with exit code 1" in refused(path)


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.init_process_group('nccl')",
        "import os; print(os.environ['LOCAL_RANK'])",
    ],
    ids=["group", "variable"],
)
def test_a_process_of_a_job_gets_a_hint(line: str, tmp_path: Path) -> None:
    path = script(tmp_path, f"torch.ones(9, device='cuda')\n{line}")
    assert "gmlake forecast --ranks N runs one of N" in refused(path)


@pytest.mark.long
def test_one_rank_of_a_job_gets_no_hint(tmp_path: Path) -> None:
    path = script(tmp_path, "torch.ones(9, device='cuda')\nraise RuntimeError('NCCL')")
    assert "ranks" not in refused("--ranks", "2", path)


@pytest.mark.long
def test_a_script_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    path = script(tmp_path, "import time\ntorch.ones(9, device='cuda')\ntime.sleep(900)")
    found = forecast("--timeout", "8", path)
    assert (found["why"], found["fits"], found["peak_live_bytes"]) == ("time was up", None, 512)
    path = script(tmp_path, "import time\ntime.sleep(900)")
    said = refused("--timeout", "8", path)
    assert said == (
        "gmlake: script.py took longer than 8 s. --timeout SECONDS gives it more, and "
        "--show-output shows what it prints\n"
    )
    assert refused("--timeout", "0", path) == (
        "gmlake: a timeout of 0 s: a run needs more than none\n"
    )


@pytest.mark.long
def test_a_thread_that_fails_is_said(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "import threading\n"
        "torch.ones(9, device='cuda')\n"
        "one = threading.Thread(target=lambda: 1 / 0)\n"
        "one.start()\n"
        "one.join()\n",
    )
    (note,) = [each for each in forecast(path)["notes"] if "thread" in each]
    assert note == (
        f"a thread ended by 'ZeroDivisionError: division by zero' at {path}:4 in <lambda>(), "
        "which has 'one = threading.Thread(target=lambda: 1 / 0)'; what it would have done is "
        "missing"
    )


# ---- several processes


BY_MULTIPROCESSING = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""

BY_FORK = """
import os
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    work()
"""


@pytest.mark.long
@pytest.mark.parametrize("lines", [BY_MULTIPROCESSING, BY_FORK], ids=["multiprocessing", "fork"])
def test_a_child_that_is_forked_counts(lines: str, tmp_path: Path) -> None:
    work = "def work():\n    torch.ones(3 << 20, device='cuda')\n"
    found = forecast(script(tmp_path, work + lines))
    assert found["peak_live_bytes"] == 12 * MIB


WORKERS = """
import torch.multiprocessing as mp

def work(rank):
    torch.ones((rank + 1) << 20, device="cuda")
    {rest}

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


@pytest.mark.long
def test_of_several_processes_the_one_that_needs_most_counts(tmp_path: Path) -> None:
    found = forecast(script(tmp_path, WORKERS.format(rest="pass")))
    assert found["peak_live_bytes"] == 8 * MIB
    assert "2 processes used the GPU; this is the one that needs most" in found["notes"]


@pytest.mark.long
def test_a_worker_that_fails_is_not_forecast(tmp_path: Path) -> None:
    said = refused(script(tmp_path, WORKERS.format(rest="raise ValueError('no rows')")))
    assert "no rows" in said


# ---- recordings and pages


@pytest.mark.long
def test_the_recording_is_what_the_forecast_rests_on(tmp_path: Path) -> None:
    file = tmp_path / "run.pickle"
    found = forecast("--record", file, TRAIN)
    fit = forecasting.run("fit", "--json", file)
    assert fit.returncode == 0, fit.stderr
    (report,) = json.loads(fit.stdout)["reports"]
    assert needs(report) == needs(found)
    asked = forecasting.run("query", file)
    assert asked.returncode == 0, asked.stderr
    assert "forecast_train.py" in asked.stdout


@pytest.mark.long
def test_a_recording_that_cannot_be_written_is_one_line_after_the_answer() -> None:
    done = forecasting.run("forecast", "--record", "/nowhere/run.pickle", TRAIN)
    assert done.returncode == 2
    assert done.stdout.startswith("peak ")
    assert done.stderr == "gmlake: cannot write /nowhere/run.pickle: No such file or directory\n"


# ---- one rank of many


@functools.cache
def of_ranks(*words: str) -> dict[str, Any]:
    return forecast(*words)


@pytest.mark.long
def test_a_replicated_model_has_buckets_of_its_gradients_beside_it() -> None:
    alone, replicated = (
        of_ranks(str(RANKS), "alone"),
        of_ranks("--ranks", "4", str(RANKS), "replicated"),
    )
    gradients = 2 * (rounded(1024 * 1024 * 4) + rounded(1024 * 4))
    more = replicated["peak_live_bytes"] - alone["peak_live_bytes"]
    assert abs(more - gradients) <= 64 << 10
    assert (replicated["world"], replicated["rank"], replicated["why"]) == (4, 0, "steps repeat")
    assert replicated["beyond"]["communication_bytes"] == 850 * MIB
    assert alone["beyond"]["communication_bytes"] == 0


@pytest.mark.long
def test_a_sharded_model_needs_less_the_more_ranks_there_are() -> None:
    alone = of_ranks(str(RANKS), "alone")
    two = of_ranks("--ranks", "2", str(RANKS), "sharded")
    eight = of_ranks("--ranks", "8", "--rank", "7", str(RANKS), "sharded")
    assert eight["peak_live_bytes"] < two["peak_live_bytes"] < alone["peak_live_bytes"]
    assert (eight["world"], eight["rank"], eight["why"]) == (8, 7, "steps repeat")
    done = forecasting.run("forecast", "--ranks", "2", RANKS, "sharded")
    assert "(steps repeat, rank 0 of 2; what comes after" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_hears_of_the_others_what_it_says_itself(rank: int, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    forecast("--ranks", "4", "--rank", str(rank), RANKS, "talking", str(seen))
    assert seen_by(seen) == {
        "rank": rank,
        "world": 4,
        "gathered": [{"rank": rank}] * 4,
        "sent": ["of mine"],
        "collected": ["mine"] * 4 if rank == 0 else [None] * 4,
        "received": ["first"],
        "pair": 2,
        "dp": 2,
        "tp": rank % 2,
    }


# ---- interrupted


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_signal_ends_the_script_with_the_command_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    ready, folder = tmp_path / "ready", tmp_path / "temporary"
    folder.mkdir()
    path = script(
        tmp_path,
        "import os, pathlib, subprocess, time\n"
        "torch.ones(9, device='cuda')\n"
        "worker = subprocess.Popen(['sleep', '900'])\n"
        f"pathlib.Path({str(ready) + '~'!r}).write_text(f'{{os.getpid()}} {{worker.pid}}')\n"
        f"os.rename({str(ready) + '~'!r}, {str(ready)!r})\n"
        "time.sleep(900)\n",
    )
    process = forecasting.start("forecast", path, variables={"TMPDIR": str(folder)})
    try:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.05)
        started = list(map(int, ready.read_text().split()))
        os.kill(process.pid, number)  # to the command alone
        output, errors = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            process.kill()
    assert output == ""
    assert "Traceback" not in errors
    assert process.returncode in {130, -number, 128 + number}
    left = [each for each in started if is_running(each)]
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert left == []
    assert list(folder.glob("gmlake*")) == []


def is_running(number: int) -> bool:
    try:
        state = (
            Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        )
    except OSError:
        return False
    return state != "Z"


# ---- what is left alone


@pytest.mark.long
def test_settings_of_the_user_do_not_reach_the_script(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    settings = {
        "GMLAKE_STANDIN_CAPACITY": "1GiB",
        "GMLAKE_STANDIN_SERVED": "1GiB",
        "GMLAKE_STANDIN_DEVICES": "3",
        "GMLAKE_STANDIN_NAME": "mine",
        "GMLAKE_STANDIN_CAPABILITY": "8.0",
        "GMLAKE_STANDIN_MULTIPROCESSORS": "5",
        "GMLAKE_STANDIN_BACKED": "1",
        "GMLAKE_STANDIN_VIRTUAL_MEMORY": "0",
        "GMLAKE_STANDIN_PACE": "manual",
        "GMLAKE_STANDIN_ABORT": "1",
    }
    found = forecast(TRAIN, "--seen", str(seen), **settings)
    figures = seen_by(seen)
    assert figures["steps"][0]["devices"] == 1
    assert figures["steps"][0]["name"] == "NVIDIA H100 80GB HBM3 (gmlake stand-in, no GPU)"
    assert found == training()
    set_by_forecast = {"DEVICES", "CAPACITY", "SERVED", "NAME", "CAPABILITY", "MULTIPROCESSORS"}
    left = {name.removeprefix("GMLAKE_STANDIN_") for name in figures["variables"]}
    assert not left & (
        {name.removeprefix("GMLAKE_STANDIN_") for name in settings} - set_by_forecast
    )


@pytest.mark.long
def test_a_forecast_is_the_same_whatever_else_the_environment_says() -> None:
    variables = {
        "GMLAKE_RUN": "1",
        "GMLAKE_POLICY": "stitch",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "GMLAKE_FORECAST_RANKS": "4",
        "GMLAKE_FORECAST_STEPS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert forecast(TRAIN, **variables) == training()


@pytest.mark.long
def test_the_command_itself_never_has_the_stand_in_nor_pytorch(tmp_path: Path) -> None:
    path = script(tmp_path, "torch.ones(9, device='cuda')")
    code = (
        "import sys\n"
        "from gmlake.commands import main\n"
        f"code = main(['forecast', '--json', {str(path)!r}])\n"
        "maps = open('/proc/self/maps').read()\n"
        "sys.exit(code or 'torch' in sys.modules or 'libcuda' in maps or 'LD_PRELOAD' in"
        " __import__('os').environ)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=plain_variables(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_forecast_leaves_no_folder_behind(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    forecast(TRAIN, TMPDIR=str(folder))
    refused(script(tmp_path, "raise ValueError"), TMPDIR=str(folder))
    assert list(folder.glob("gmlake*")) == []  # PyTorch leaves one of its own
    assert os.environ.get("GMLAKE_FORECAST") is None
