"""The management library says of the devices what CUDA does, and what CUDA does not say."""

from __future__ import annotations

import re

import pytest
import torch
from tests.standin.asking import MIB, at_most, block
from tests.standin.test_launcher import run

NVML = "nvml = ctypes.CDLL('libnvidia-ml.so.1'); n = ctypes.c_uint(9)\n"
COUNT = NVML + "nvml.nvmlInit(); nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)); print(n.value)"


@pytest.mark.parametrize("visible", ["0,1,2,3", "2", ""])
def test_it_counts_the_devices_of_the_machine(visible: str) -> None:
    done = run(COUNT, "--devices", "4", variables={"CUDA_VISIBLE_DEVICES": visible})
    assert done.stdout.split() == ["4"]


@pytest.mark.parametrize(("bus", "answer"), [("0000:00:01.0", 0), ("0000:00:02.0", 6), ("x", 2)])
def test_a_device_is_found_by_its_place_on_the_bus(bus: str, answer: int) -> None:
    code = f"print(nvml.nvmlDeviceGetHandleByPciBusId_v2({bus.encode()!r}, ctypes.byref(n)))"
    assert run(NVML + "n = ctypes.c_void_p()\n" + code, "--devices", "2").stdout == f"{answer}\n"


def test_running_out_of_memory_tells_what_this_process_holds() -> None:
    with at_most(64):
        held = block(64)
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        with pytest.raises(torch.OutOfMemoryError) as caught:
            block()
    found = re.search(r"this process has (\S+) (\w+) memory in use", str(caught.value))
    assert found, caught.value
    unit = {"MiB": MIB, "GiB": 1024 * MIB}[found[2]]
    assert abs(float(found[1]) * unit - (total_bytes - free_bytes)) < 0.01 * unit
    assert held.nbytes == 64 * MIB
