"""Tests with budgets of GPU memory, on the stand-in: the same each time, and found by the line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harmless import harmless
from regressions import REGRESSIONS, Regression

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# Twenty have been seen to be equal; each takes half a minute.
RUNS = int(os.environ.get("GMLAKE_TEST_RUNS", "4"))
PROJECT = Path(__file__).parent / "project"
SCHEMA = "gmlake-budgets-1"


def put(folder: Path, name: str, change: Callable[[str, str], str] | None = None) -> None:
    """Write the project as a package of this name. change: given a file's name and its text."""
    (folder / name).mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for path in PROJECT.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        made = change(path.name, text) if change else text
        target = path.name if path.name != "twelve.py" else "test_twelve.py"
        (folder / name / target).write_text(made, encoding="utf-8")


def run(folder: Path, *words: str, launcher: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run pytest; return its exit code and all that it said."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GMLAKE_")}
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=kept | {"COLUMNS": "300"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def measured(folder: Path, *words: str, **more: Any) -> bytes:
    """Return the file of what the project's tests need."""
    path = folder / "baseline.json"
    path.unlink(missing_ok=True)
    update = (f"--gpu-memory-baseline={path}", "--gpu-memory-update")
    code, said = run(folder, *update, *words, **more)
    assert code == 0, said
    assert "written, with 12 tests" in said
    return path.read_bytes()


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the tests of the package v0 need."""
    folder = tmp_path_factory.mktemp("baseline")
    put(folder, "v0")
    return measured(folder).decode()


def with_baselines(folder: Path, names: list[str], baseline: str) -> str:
    """Write what the tests of these packages needed before; return the option that names it."""
    known: dict[str, Any] = {}
    for name in names:
        known |= json.loads(baseline.replace("v0/", f"{name}/"))[SCHEMA]
    (folder / "known.json").write_text(json.dumps({SCHEMA: known}), encoding="utf-8")
    return "--gpu-memory-baseline=known.json"


@pytest.mark.parametrize(
    ("words", "times"),
    [(("-n", "2"), 1), pytest.param((), RUNS, marks=pytest.mark.long)],
)
def test_runs_are_equal_to_the_byte(
    tmp_path: Path, baseline: str, words: tuple[str, ...], times: int
) -> None:
    put(tmp_path, "v0")
    for _ in range(times):
        assert measured(tmp_path, *words).decode() == baseline


def test_a_figure_is_left_open_where_a_convolution_works(baseline: str) -> None:
    known = json.loads(baseline)[SCHEMA]
    open_ones = [name for name, one in known.items() if one["has_convolved"]]
    assert open_ones == ["v0/test_twelve.py::test_images"]


def test_on_a_gpu_the_tests_run_in_this_process(tmp_path: Path, baseline: str) -> None:
    """The stand-in poses as one."""
    put(tmp_path, "v0")
    (tmp_path / "pose.py").write_text(
        "import gmlake.standin.control as control\ncontrol.is_active = lambda: False\n",
        encoding="utf-8",
    )
    launcher = ("-m", "gmlake.standin", "--capacity", "79GiB")
    more = ("-p", "pose", "--deselect", "v0/test_twelve.py::test_images")
    update = ("--gpu-memory-baseline=here.json", "--gpu-memory-update")
    code, said = run(tmp_path, *more, *update, launcher=launcher)
    assert code == 0, said
    found = json.loads((tmp_path / "here.json").read_bytes())[SCHEMA]
    known = json.loads(baseline)[SCHEMA]
    assert len(found) == 11
    for name, one in found.items():
        assert one["peak_bytes"] == known[name]["peak_bytes"], name


def regressed(one: Regression) -> Callable[[str, str], str]:
    def change(file: str, text: str) -> str:
        assert file != one.file or text.count(one.old) == 1
        return text.replace(one.old, one.new) if file == one.file else text

    return change


def test_each_regression_is_found_and_named_by_its_line(tmp_path: Path, baseline: str) -> None:
    names = {f"v{number}": one for number, one in enumerate(REGRESSIONS, 1)}
    for name, one in names.items():
        put(tmp_path, name, regressed(REGRESSIONS[one]))
    option = with_baselines(tmp_path, list(names), baseline)
    chosen = [f"{name}/test_twelve.py::{REGRESSIONS[one].test}" for name, one in names.items()]
    code, said = run(tmp_path, option, *chosen)
    assert code == 1, said
    assert f"{len(REGRESSIONS)} failed" in said
    for part, (name, one) in zip(said.split("\n___")[1:], names.items(), strict=True):
        assert "more than its baseline of" in part
        shown = [text for text in part.splitlines() if text.startswith("  +")]
        assert any(f" at {name}/" in text and REGRESSIONS[one].line in text for text in shown), one


def changed(number: int) -> Callable[[str, str], str]:
    def change(file: str, text: str) -> str:
        return harmless(number, text) if file in ("model.py", "training.py") else text

    return change


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_harmless_changes_raise_no_alarm(tmp_path: Path, baseline: str, count: int) -> None:
    names = [f"v{number}" for number in range(count)]
    for number, name in enumerate(names):
        put(tmp_path, name, changed(number))
    option = with_baselines(tmp_path, names, baseline)
    code, said = run(tmp_path, option, "--gpu-memory-table=table.md")
    assert code == 0, said
    assert f"{12 * count} passed" in said
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert table.endswith(": 0 changed\n```\n")
    assert f"{12 * count} tests were measured" in table


MIXED = """
import os
import pytest
import torch

{start}
has_gpu = torch.cuda.is_available()
memory, leaks = pytest.mark.limit_gpu_memory, pytest.mark.limit_gpu_leaks
cache = []

@pytest.fixture(scope="module")
def weights():
    return torch.zeros(4 << 20, device="cuda" if has_gpu else "cpu")

def test_unmarked(weights):
    assert not has_gpu

@memory("1 MiB")
def test_over(weights):
    more = torch.zeros(1 << 20, device="cuda")
    assert more.shape

@memory("15 MiB", allocator="default")
def test_reserved(weights):
    pass

@memory("1 MiB", ranks=4)
def test_ranks():
    torch.distributed.init_process_group("nccl")
    rank = torch.distributed.get_rank()
    assert torch.zeros(rank + 1, 1 << 18, device=f"cuda:{{rank}}").shape

@memory("1 GiB", device="h200")
def test_device():
    assert "H200" in torch.cuda.get_device_name()

@memory("1 GiB")
def test_crash():
    os._exit(3)

@leaks("1 MiB")
def test_leak(weights):
    cache.append(torch.zeros(1 << 20, device="cuda"))

@leaks("1 KiB")
def test_no_leak(weights):
    assert not cache
    made = torch.zeros(64, 64, device="cuda", requires_grad=True)
    (made @ made).sum().backward()

@memory("lots")
def test_wrong_mark():
    pass

@memory("1 MiB")
@pytest.mark.xfail(reason="known", strict=True)
def test_known(weights):
    pass
"""


def failures(said: str) -> dict[str, str]:
    """What is said of each test that failed or erred, by name."""
    parts = said.split("\n___")[1:]
    return {part.strip("_ ").partition(" ___")[0].split(" ")[-1]: part for part in parts}


def test_each_kind_of_failure_says_what_it_is(tmp_path: Path) -> None:
    text = MIXED.format(start="")
    (tmp_path / "test_mixed.py").write_text(text, encoding="utf-8")
    (tmp_path / "test_other.py").write_text("def test_last():\n    pass\n", encoding="utf-8")
    code, said = run(tmp_path, "--gpu-memory")
    assert code == 1
    found = failures(said)
    assert set(found) == {
        *("test_over", "test_reserved", "test_ranks", "test_crash", "test_leak"),
        "test_wrong_mark",
    }, said
    assert "the test needs 20.0 MiB of GPU memory; its limit is 1 MiB" in found["test_over"]
    assert "16.0 MiB at test_mixed.py:13 in weights()" in found["test_over"]
    assert "4.00 MiB at test_mixed.py:20 in test_over()" in found["test_over"]
    assert "with the allocator 'default'; its limit is 15 MiB" in found["test_reserved"]
    assert "needs 4.00 MiB of GPU memory on rank 3 of 4" in found["test_ranks"]
    assert "the process of the test ended with exit code 3" in found["test_crash"]
    assert "4.00 MiB of GPU memory are still held after the test" in found["test_leak"]
    assert "cache.append(torch.zeros(1 << 20" in found["test_leak"]
    assert "a mark of this test cannot be read: 'lots' is not a size" in found["test_wrong_mark"]
    assert "5 failed, 5 passed, 1 xfailed, 1 error" in said


@pytest.mark.parametrize(
    "start",
    ["torch.cuda.is_available() and torch.zeros(1, device='cuda')", "torch.cuda.get_arch_list()"],
)
def test_where_collecting_starts_cuda_tests_share_its_process(tmp_path: Path, start: str) -> None:
    text = MIXED.format(start=start)
    (tmp_path / "test_mixed.py").write_text(text, encoding="utf-8")
    code, said = run(tmp_path, "-k", "over or device or no_leak or unmarked")
    assert code == 1
    found = failures(said)
    assert set(found) == {"test_over", "test_device"}, said
    assert "the test needs 20.0 MiB of GPU memory" in found["test_over"]
    assert "CUDA has started while tests were collected" in found["test_device"]


def test_a_test_that_is_not_collected_there_says_so(tmp_path: Path) -> None:
    text = (
        "import pytest, torch\n@pytest.mark.limit_gpu_memory('1 GiB')\ndef test_it():\n    pass\n"
        "if torch.cuda.is_available():\n    raise RuntimeError('a GPU')\n"
    )
    (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    code, said = run(tmp_path)
    assert code == 1
    assert "it was not collected on the stand-in GPU" in said
    assert "RuntimeError: a GPU" in said
