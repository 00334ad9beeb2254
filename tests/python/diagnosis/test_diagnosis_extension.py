"""The extension of the diagnosis: memory does not grow, and what it has is declared."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.diagnosis import Part, _diagnosis
from gmlake.diagnosis.object_layout import FINDING
from leaks import check_growth
from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


def _objects() -> gmlake.ObjectTrace:
    builder = gmlake.TraceBuilder()
    for stream in range(3):
        one = builder.alloc(1000, element_bytes=4, stream=stream)
        builder.set("set", writes=[one], stream=stream)
        builder.kernel("kernel", reads=[Part(one, ((0, 8, 16, 4),))], stream=stream)
        builder.free(one)
    return builder.build()


OBJECTS = _objects()


def use_diagnosis() -> None:
    _ = (_diagnosis.patterns(), _diagnosis.defaults())
    tables = (OBJECTS.apis, OBJECTS.objects, OBJECTS.accesses, OBJECTS.ranges)
    found = _diagnosis.diagnose(*tables)
    count = len(found["findings"]) // FINDING.itemsize
    _diagnosis.peak_with(found["handle"], np.arange(count, dtype=np.uint64))
    _diagnosis.check(found["handle"], np.arange(count, dtype=np.uint64))
    wrong: list[Callable[[], object]] = [
        lambda: _diagnosis.diagnose(b"x", *tables[1:]),
        lambda: _diagnosis.diagnose(*tables[:3], b"x"),
        lambda: _diagnosis.diagnose(*tables, idle_apis=-1),
        lambda: _diagnosis.peak_with(found["handle"], np.full(1, count, np.uint64)),
        lambda: _diagnosis.check(found, np.zeros(1, np.uint64)),
    ]
    for use in wrong:
        with contextlib.suppress(gmlake.Error, ValueError, TypeError, OverflowError):
            use()
            pytest.fail("this should have been refused")


def test_memory_does_not_grow() -> None:
    check_growth(use_diagnosis)


def test_stub_and_extension_agree() -> None:
    stub = (ROOT / "src/gmlake/diagnosis/_diagnosis.pyi").read_text(encoding="utf-8")
    declared = set(re.findall(r"^def (\w+)", stub, re.MULTILINE))
    assert declared == vars(_diagnosis).keys() - vars(ModuleType("any")).keys() - {"__file__"}
    for name in declared:
        assert getattr(_diagnosis, name).__doc__, f"{name} has no docstring"


def test_without_pytorch_a_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\nimport gmlake\n"
        "try:\n    gmlake.diagnose()\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("gmlake.diagnose needs PyTorch, which is not installed")
