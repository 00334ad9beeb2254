"""The collector inside a real CUDA program, and PolyBench's peaks, on a GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.diagnosis import ObjectTrace, programs
from gmlake.lake import device_describe
from proving import prove

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

CUPY = """
import cupy
import numpy as np

cupy.cuda.set_allocator(None)  # each array is a cudaMalloc
double = cupy.RawKernel(
    'extern "C" __global__ void twice(float *x) { x[blockIdx.x * 256 + threadIdx.x] *= 2; }',
    "twice",
)
host = np.ones(1 << 20, np.float32)
unused = cupy.empty(3 << 20, np.uint8)
values = cupy.asarray(host)
double((4096,), (256,), (values,))
double((4096,), (256,), (values,))
assert cupy.asnumpy(values)[7] == 4
"""
TORCH = """
import torch
data = torch.ones(1 << 22, device="cuda")
work = torch.cuda.caching_allocator_alloc(8 << 20)
print(float((data * 2).sum()))
"""


@pytest.fixture(autouse=True)
def gpu() -> None:
    try:
        device_describe("cuda")
        programs.find_library("GMLAKE_CUPTI", {})
    except gmlake.Error as error:
        pytest.skip(str(error))


def run(folder: Path, code: str) -> ObjectTrace:
    path = folder / "program.py"
    path.write_text(code)
    watched = programs.watch_program([sys.executable, str(path)])
    assert watched.code == 0
    (trace,) = watched.traces
    return trace


def test_a_program_of_cupy(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    trace = run(tmp_path, CUPY)
    sizes = trace.objects["size_bytes"].tolist()
    assert {4 << 20, 3 << 20} <= set(sizes)
    labels = [trace.label(api) for api in range(len(trace.apis))]
    assert labels.count("twice") == 2
    found = gmlake.find_inefficiencies(trace)
    unused = [one for one in found.findings if one.pattern == "unused allocation"]
    assert 3 << 20 in [one.size_bytes for one in unused]
    values = sizes.index(4 << 20)
    assert values not in [one.object for one in unused]
    assert int(found.lives["access_count"][values]) >= 4  # in, two kernels, out
    prove(found)


@pytest.mark.torch
def test_a_program_of_pytorch(tmp_path: Path) -> None:
    trace = run(tmp_path, TORCH)
    assert int(trace.objects["size_bytes"].sum()) >= 20 << 20
    found = gmlake.find_inefficiencies(trace)
    touched = found.lives["access_count"][trace.objects["size_bytes"] >= 16 << 20]
    assert touched.max() >= 2
    prove(found)
