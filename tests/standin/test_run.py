"""`gmlake run` with the real PyTorch: when gmlake begins to serve, and in which processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.standin.gmlake_run import RUN, TORCHRUN, Ended, program, run
from tests.standin.running import without_adapters

ONE = ("--devices", "1", "--capacity", "256MiB")
TWO = ("--devices", "2", "--capacity", "256MiB")
MIB = 1 << 20
COMMAND = Path(sys.executable).parent / "gmlake"

SERVED = """
import json, os, torch
def show(**more):
    import gmlake
    stats = torch.cuda.memory_stats()
    print(json.dumps({
        "backend": torch.cuda.get_allocator_backend(), "enabled": gmlake.is_enabled(),
        "allocated": torch.cuda.memory_allocated(), "rank": os.environ.get("RANK"), **more,
    }) + "\\n", end="", flush=True)
"""


def run_code(
    folder: Path,
    code: str,
    *options: str,
    settings: tuple[str, ...] = ONE,
    before: tuple[str, ...] = RUN,
    variables: dict[str, str] | None = None,
) -> Ended:
    """Run a script of this code under `gmlake run`, which must end well."""
    script = folder / "script.py"
    script.write_text(code)
    ended = run(*before, *options, str(script), settings=settings, variables=variables)
    assert ended.code == 0, ended.errors
    return ended


@pytest.mark.long
def test_a_report_says_what_plans_served_and_why_no_more(tmp_path: Path) -> None:
    code = f"""
import gmlake, torch
auto = gmlake.AutoPlan()
for number in range(7):
    with auto.step():
        for size in range(2, 6 + number // 6):
            torch.empty(size * {MIB}, device="cuda", dtype=torch.uint8)
"""
    (report,) = run_code(tmp_path, code, "--report").reports
    assert report["planned"] == (
        "4 of 6 steps planned, with 16 of 17 requests; "  # CUDA is not in use when the first begins
        "the last: left: a request came, or a block ended, that the plan has not"
    )


@pytest.mark.long
@pytest.mark.parametrize("variables", [{}, {"CUDA_VISIBLE_DEVICES": ""}], ids=["cuda", "none"])
def test_a_program_without_cuda_is_left_alone(variables: dict[str, str], tmp_path: Path) -> None:
    code = "import torch; print(torch.ones(3).sum().item(), torch.cuda.is_initialized())"
    ended = run_code(tmp_path, code, "--report", variables=variables)
    assert (ended.output, ended.errors) == ("3.0 False\n", "")


def no_compiler(folder: Path) -> dict[str, str]:
    return {"CXX": "no-such-compiler"} | without_adapters(folder)


@pytest.mark.long
def test_why_nothing_is_served_is_said_when_cuda_starts(tmp_path: Path) -> None:
    code = """
import sys, torch
print("imported", file=sys.stderr)
torch.cuda.init()
torch.empty(1, device="cuda")
"""
    ended = run_code(tmp_path, code, variables=no_compiler(tmp_path))
    assert ended.errors.startswith("imported\n")
    assert (
        "gmlake serves nothing in this process, PyTorch's own allocator does: "
        "CXX=no-such-compiler is not there, which makes the adapter to PyTorch; install g++"
    ) in ended.errors
    assert f"{tmp_path}/script.py:4: GmlakeWarning" in ended.errors
    silent = run_code(
        tmp_path, code, variables={**no_compiler(tmp_path), "PYTHONWARNINGS": "ignore"}
    )
    assert silent.errors == "imported\n"


OTHER = """
extern int cudaMalloc(void **, unsigned long), cudaFree(void *);
void *take(long size, int device, void *stream) { void *p = 0; cudaMalloc(&p, size); return p; }
void give(void *p, long size, int device, void *stream) { cudaFree(p); }
"""


@pytest.mark.long
def test_the_allocator_of_another_library_is_said_to_serve(tmp_path: Path) -> None:
    """It replaces gmlake's before CUDA starts, which PyTorch tells nobody."""
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(OTHER)
    subprocess.run(
        [shutil.which("cc") or "cc", "-shared", "-fPIC", source, "-o", library], check=True
    )
    code = f"""
import torch
from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator
change_current_allocator(CUDAPluggableAllocator("{library}", "take", "give"))
for _ in range(2):
    print(torch.empty({MIB}, device="cuda").device)
"""
    ended = run_code(tmp_path, code, "--report")
    assert ended.output == "cuda:0\ncuda:0\n"
    assert ended.errors.splitlines()[0] == (
        f"{tmp_path}/script.py:6: GmlakeWarning: gmlake serves nothing in this process, another "
        "library's allocator does: change_current_allocator() put it there; leave one of the two "
        "out"
    )
    assert ended.errors.count("gmlake") == 1
    strict = run_code(tmp_path, code, variables={"PYTHONWARNINGS": "error"})
    assert strict.output == "cuda:0\ncuda:0\n"
    assert strict.errors.startswith("gmlake: gmlake serves nothing in this process, another")


@pytest.mark.long
def test_memory_that_is_not_to_be_cached_is_left_to_pytorch(tmp_path: Path) -> None:
    """As compute-sanitizer wants it: each tensor is an allocation of its own, of its size."""
    code = f"{SERVED}\ntensor = torch.empty({MIB}, device='cuda')\nshow()"
    ended = run_code(tmp_path, code, variables={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    assert (ended.result["enabled"], ended.result["allocated"]) == (False, 0)
    assert "does: PYTORCH_NO_CUDA_MEMORY_CACHING is set, which turns caching off" in ended.errors


@pytest.mark.long
def test_a_device_that_is_served_otherwise_is_said_at_the_end(tmp_path: Path) -> None:
    code = "import torch\ntorch.empty(1, device='cuda')"
    ended = run_code(tmp_path, code, variables={"GMLAKE_STANDIN_VIRTUAL_MEMORY": "0"})
    said = "sys:1: GmlakeWarning: device 0 is served as PyTorch's own allocator would: this device"
    assert ended.errors.startswith(said)
    assert run_code(tmp_path, code).errors == ""


@pytest.mark.long
def test_a_report_counts_regions_by_name_and_what_gmlake_does_not_serve(tmp_path: Path) -> None:
    code = f"""
import gmlake, torch
def take(mib): return torch.empty(mib * {MIB}, device="cuda", dtype=torch.uint8)
outside = take(10)
with gmlake.enabled("caching"):
    natives = take(20)
with gmlake.region("cache"):
    cache = take(100)
gmlake.sleep("cache")
with gmlake.region("weights"):
    weights = take(50)
late = take(30)
"""
    ended = run_code(tmp_path, code, "--report")
    place = f"gmlake: {ended.reports[0]['name']}, device 0"
    told = [line.partition(" reserved at the peak")[0] for line in ended.errors.splitlines()]
    assert told == [
        f"{place}, outside of regions: 40.0 MiB",
        f"{place}, region 'cache': 100 MiB",
        f"{place}, region 'weights': 50.0 MiB",
        f"{place}, in all: 112 MiB",  # with 2 MiB of random numbers, which stay outside
    ]
    beside = "held beside gmlake at the end: 20.0 MiB by PyTorch's own allocator"
    assert beside in ended.errors.splitlines()[0]


@pytest.mark.long
def test_it_begins_without_a_word(tmp_path: Path) -> None:
    code = "import torch\ntorch.empty(1, device='cuda')"
    assert run_code(tmp_path, code).errors == ""


@pytest.mark.long
def test_a_program_whose_warnings_are_errors_runs(tmp_path: Path) -> None:
    """An exception while CUDA starts would keep it from starting for good."""
    code = "import torch\nprint(torch.empty(1, device='cuda').device)"
    ended = run_code(tmp_path, code, variables={**no_compiler(tmp_path), "PYTHONWARNINGS": "error"})
    assert ended.output == "cuda:0\n"
    assert ended.errors.startswith("gmlake: gmlake serves nothing in this process")
    assert ended.errors.count("\n") == 1


@pytest.mark.long
def test_a_report_tells_the_peak_of_the_whole_process(tmp_path: Path) -> None:
    """A program may reset PyTorch's peaks as often as it likes."""
    code = f"""
{SERVED}
tensor = torch.empty({60 * MIB}, device="cuda", dtype=torch.uint8)
del tensor
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
tensor = torch.empty({20 * MIB}, device="cuda", dtype=torch.uint8)
torch.cuda.reset_peak_memory_stats()
show(peak=torch.cuda.max_memory_allocated())
"""
    ended = run_code(tmp_path, code, "--report")
    assert ended.result["peak"] == 20 * MIB
    assert "60.0 MiB reserved at the peak, 60.0 MiB live" in ended.errors


@pytest.mark.long
def test_a_generator_may_hold_a_session_until_python_shuts_down(tmp_path: Path) -> None:
    code = f"""
{SERVED}
import gmlake, sys, warnings
warnings.simplefilter("ignore")
def steps():
    with gmlake.enabled():
        yield torch.empty({MIB}, device="cuda")
sys.modules["kept"] = steps()
tensor = next(sys.modules["kept"])
show()
"""
    ended = run_code(tmp_path, code)
    assert (ended.result["allocated"], ended.errors) == (4 * MIB, "")


@pytest.mark.long
def test_processes_of_multiprocessing_are_served(tmp_path: Path) -> None:
    code = f"""
{SERVED}
import multiprocessing
def work():
    tensor = torch.empty({MIB}, device="cuda", dtype=torch.uint8)
    show()
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""
    ended = run_code(tmp_path, code, "--report")
    assert ended.result["enabled"]
    assert ended.result["allocated"] == MIB
    assert len(ended.reports) == 1  # the parent used no device


RANKS = (
    SERVED
    + """
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
tensor = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
show(device=torch.cuda.current_device())
"""
)


@pytest.mark.parametrize(
    "inner",
    [RUN, pytest.param(("--no-python", str(COMMAND), "run"), marks=pytest.mark.long)],
    ids=["module", "command"],
)
def test_gmlake_run_under_torchrun(inner: tuple[str, ...], tmp_path: Path) -> None:
    before = (*TORCHRUN, *inner)
    ended = run_code(tmp_path, RANKS, "--report", settings=TWO, before=before)
    results = sorted(ended.results, key=lambda result: str(result["rank"]))
    assert [(result["rank"], result["device"]) for result in results] == [("0", 0), ("1", 1)]
    assert all(result["allocated"] == MIB for result in results)
    reports = sorted(ended.reports, key=lambda report: report["name"])
    assert [(report["name"], report["device"]) for report in reports] == [
        ("rank 0", "0"),
        ("rank 1", "1"),
    ]


@pytest.mark.long
def test_a_session_of_the_program_nests(tmp_path: Path) -> None:
    code = f"""
{SERVED}
import gmlake
with gmlake.enabled() as session:
    tensor = torch.empty({MIB}, device="cuda", dtype=torch.uint8)
    show(policy=session.policy, mode=session.mode, same=gmlake.enable().mode)
show()
"""
    ended = run_code(tmp_path, code, "--policy", "expandable")
    inside, outside = ended.results
    assert (inside["policy"], inside["mode"], inside["same"]) == ("expandable", "native", "native")
    assert outside["enabled"]


@pytest.mark.long
def test_settings_reach_the_lake(tmp_path: Path) -> None:
    code = f"""
{SERVED}
try:
    torch.empty({40 * MIB}, device="cuda", dtype=torch.uint8)
except torch.OutOfMemoryError:
    tensor = torch.empty({MIB}, device="cuda", dtype=torch.uint8)
    show(reserved=torch.cuda.memory_reserved())
"""
    ended = run_code(tmp_path, code, "--capacity", "32MiB", "--set", "chunk_size=8MiB")
    assert ended.result["allocated"] == MIB
    assert ended.result["reserved"] == 8 * MIB


@pytest.mark.long
def test_a_process_that_cannot_be_served_goes_on_without(tmp_path: Path) -> None:
    code = f"""
import os
os.environ["GMLAKE_POLICY"] = "magic"
{SERVED}
tensor = torch.empty({MIB}, device="cuda", dtype=torch.uint8)
show()
"""
    ended = run_code(tmp_path, code, "--report")
    assert (ended.result["backend"], ended.result["enabled"]) == ("native", False)
    line = "gmlake: this process runs without gmlake: GMLAKE_POLICY: no policy is called 'magic'"
    assert ended.errors.startswith(line)
    assert ended.errors.count("\n") == 1


@pytest.mark.long
def test_a_module_that_is_no_pytorch_may_be_called_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("value = 5")
    ended = run_code(tmp_path, "import torch; print(torch.value)")
    assert (ended.output, ended.errors) == ("5\n", "")


@pytest.mark.long
def test_a_report_may_have_nowhere_to_go(tmp_path: Path) -> None:
    code = f"""
{SERVED}
import sys
tensor = torch.empty({MIB}, device="cuda", dtype=torch.uint8)
show()
sys.stderr = None
"""
    assert run_code(tmp_path, code, "--report").reports == []


@pytest.mark.long
def test_graphs_of_a_compiled_model_run() -> None:
    ended = run(*RUN, "--report", program("compiled"))
    assert ended.code == 0, ended.errors
    assert ended.result["reduce-overhead"]["kernels"]["cudaGraphLaunch"] > 0
    assert ended.result["reserved_at_end"] == [0] * len(ended.result["reserved_at_end"])
    assert len(ended.reports) == 1
