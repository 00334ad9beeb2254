"""Budgets of GPU memory where nothing can measure them, and what is read of marks and baselines."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from gmlake.budgets.baselines import conclude, read_baseline, write_baseline
from gmlake.budgets.found import Found, grown
from gmlake.budgets.wishes import Wish, wish_of

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = """
import sys

def test_plain():
    heavy = {"numpy", "rich", "torch", "gmlake.budgets.wishes", "gmlake.standin.devices"}
    assert not heavy & set(sys.modules)
"""
PROJECT = """
import pytest

def test_plain():
    pass

@pytest.mark.limit_gpu_memory("1 GiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
def test_marked():
    raise AssertionError("it ran")
"""


def run(folder: Path, *words: str, text: str = PROJECT) -> subprocess.CompletedProcess[str]:
    """Run pytest on a file of tests."""
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=dict(os.environ) | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )


def without_torch(folder: Path) -> str:
    """Return the start of a file of tests in which PyTorch is not installed."""
    (folder / "conftest.py").write_text(
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'torch' else real(name, *more)\n",
        encoding="utf-8",
    )
    return PROJECT


def test_a_marked_test_is_skipped_and_a_line_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, text=without_torch(tmp_path))
    assert "GPU memory cannot be measured: PyTorch is not installed in" in done.stdout
    assert "pip install torch --index-url" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert done.returncode == 0


def test_or_fails_where_it_must_be_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "--gpu-memory-required", text=without_torch(tmp_path))
    assert "GPU memory cannot be measured" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "it ran" not in done.stdout


def test_a_run_without_marks_loads_nothing_that_measures(tmp_path: Path) -> None:
    done = run(tmp_path, text=PLAIN)
    assert done.returncode == 0, done.stdout


def test_what_is_written_needs_a_baseline(tmp_path: Path) -> None:
    done = run(tmp_path, "--gpu-memory-update")
    assert "--gpu-memory-update needs --gpu-memory-baseline=FILE" in done.stderr
    assert done.returncode == 4


def test_the_table_begins_with_what_changed(tmp_path: Path) -> None:
    lines = {line(3, "a = f(x)"): 100 << 20}
    known = {"equal": Found(300 << 20, 1, "gpu", lines), "less": Found(200 << 20, 1, "gpu", lines)}
    write_baseline(tmp_path / "b.json", known)
    now = known | {
        "less": Found(100 << 20, 2 << 20, "gpu", lines),
        "new": Found(1 << 20, 1, "gpu", {}, has_convolved=True),
    }
    names = ("gpu_memory", "gpu_memory_all", "gpu_memory_update")
    chosen = Namespace(**dict.fromkeys(names, False), gpu_memory_table=tmp_path / "table.md")
    tests = {name: asdict(one) for name, one in now.items()}
    (said,) = conclude(chosen, tmp_path / "b.json", tests)
    assert said.endswith("b.json has nothing of 1 tests: --gpu-memory-update adds them")
    holds = f"{'':34}100 MiB at model.py:3 in forward(), activations: a = f(x)"
    assert (tmp_path / "table.md").read_text(encoding="utf-8").splitlines() == [
        "```text",
        "      peak     change   reserved  test, and the line that holds most",
        "   100 MiB   -100 MiB   2.00 MiB  less",
        holds,
        "   300 MiB                   1 B  equal",
        holds,
        "  1.00 MiB        new        1 B  new ± workspace",
        "3 tests were measured on gpu: 2 changed",
        "```",
    ]


class Item:
    """A test with marks, as far as they are looked at."""

    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self.marks = {one.name: one.mark for one in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def wished(*marks: pytest.MarkDecorator, is_all: bool = False) -> Wish | str | None:
    item: Any = Item(*marks)
    return wish_of(item, is_all=is_all)


def test_marks_are_read() -> None:
    memory, leaks = pytest.mark.limit_gpu_memory, pytest.mark.limit_gpu_leaks
    assert wished() is None
    assert wished(is_all=True) == Wish()
    assert wished(memory("1 GiB", ranks=4)) == Wish("1 GiB", ranks=4)
    assert wished(memory(1 << 20), leaks("1 MiB")) == Wish(1 << 20, leaks="1 MiB")


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (pytest.mark.limit_gpu_memory("6 Gb of it"), "is not a size"),
        (pytest.mark.limit_gpu_memory(1.5), "1.5 is not a size; write one as '6 GiB'"),
        (pytest.mark.limit_gpu_memory("1 GiB", device="abacus"), "no device is called 'abacus'"),
        (pytest.mark.limit_gpu_memory("1 GiB", allocator="x"), "there are default, expandable"),
        (pytest.mark.limit_gpu_memory("1 GiB", ranks=0), "ranks=0: a number from 1"),
        (pytest.mark.limit_gpu_memory("1 GiB", limits=2), "there is limit_gpu_memory(limit"),
        (pytest.mark.limit_gpu_leaks(), "'no size' is not a size"),
    ],
)
def test_a_mark_that_cannot_be_read_says_why(mark: pytest.MarkDecorator, said: str) -> None:
    found = wished(mark)
    assert isinstance(found, str)
    assert said in found


def line(number: int, code: str, function: str = "forward") -> str:
    return f"model.py:{number} in {function}(), activations: {code}"


def test_lines_are_known_again_where_they_have_moved() -> None:
    before = {line(3, "a = f(x)"): 100, line(5, "b = g(a)"): 10, line(9, "c = a", "call"): 7}
    after = {line(33, "a = f(x)"): 100, line(35, "b = g(a, 1)"): 60, line(39, "c = a", "call"): 7}
    (change,) = grown(before, after)
    assert change.change_bytes == 50
    assert change.key == "model.py:35 in forward(), activations: b = g(a, 1)"


def test_lines_may_change_places() -> None:
    before = {line(3, "a = f(x)"): 100, line(5, "b = g(x)"): 10}
    assert grown(before, {line(13, "b = g(x)"): 10, line(14, "a = f(x)"): 100}) == ()


def test_equal_lines_are_told_apart_by_their_order() -> None:
    before = {line(3, "x = f(x)"): 100, line(4, "x = f(x)"): 10}
    after = {line(13, "x = f(x)"): 100, line(14, "x = f(x)"): 30}
    (change,) = grown(before, after)
    assert (change.change_bytes, change.key.partition(" ")[0]) == (20, "model.py:14")


NEEDS = '{"gmlake-budgets-1": {"test": {"device": "", "reserved_bytes": 1, '


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"gmlake-budgets-1": {"test": {}}}'),
        NEEDS + '"peak_bytes": 1, "lines": [["train.py:1", 1]]}}}',
        NEEDS + '"peak_bytes": "1 GiB", "lines": {}}}}',
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="is no baseline of GPU memory"):
        read_baseline(path)
    assert read_baseline(tmp_path / "none.json") == {}
