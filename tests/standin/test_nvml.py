"""The management library says of the devices what CUDA does, and what CUDA does not say."""

from __future__ import annotations

import json
import re
from typing import Any

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


ASKED = """
import json
nvml = ctypes.CDLL('libnvidia-ml.so.1')
handle, again, place = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_uint * 17)()
sizes = (ctypes.c_ulonglong * 3)()
words = ctypes.create_string_buffer(96)
def text(call, *given):
    assert call(*given, words, 96) == 0
    return words.value.decode()
def number(call, *given):
    found = ctypes.c_uint(99)
    assert call(*given, ctypes.byref(found)) == 0
    return found.value
def used(index):
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(handle, sizes) == 0
    assert sizes[0] == sizes[1] + sizes[2]
    return [sizes[0], sizes[2]]
block, uuid, bus = ctypes.c_void_p(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
told = {'began': [nvml.nvmlInitWithFlags(0), nvml.nvmlShutdown()]}
told['driver'] = text(nvml.nvmlSystemGetDriverVersion)
told['before'] = [used(index) for index in range(3)]
assert cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(256 << 20)) == 0
told['after'] = [used(index) for index in range(3)]
assert cuda.cuDeviceGetUuid_v2(uuid, 0) == 0 and cuda.cudaDeviceGetPCIBusId(bus, 32, 0) == 0
told['of_cuda'] = [bytes(uuid).hex(), bus.value.decode()]
assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(handle)) == 0
told['uuid'] = text(nvml.nvmlDeviceGetUUID, handle)
told['found'] = [nvml.nvmlDeviceGetHandleByUUID(words.value, ctypes.byref(again))]
told['found'] += [number(nvml.nvmlDeviceGetIndex, again), again.value == handle.value]
told['bus'] = [nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(again)), again.value]
told['index'] = number(nvml.nvmlDeviceGetIndex, again)
told['name'] = text(nvml.nvmlDeviceGetName, handle)
major, minor = ctypes.c_int(), ctypes.c_int()
asked = nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
told['capability'] = [asked, major.value, minor.value]
assert nvml.nvmlDeviceGetPciInfo_v3(handle, place) == 0
told['place'] = [bytes(place)[:16].rstrip(b'\\0').decode(), *place[4:7]]
told['place'] += [bytes(place)[36:].rstrip(b'\\0').decode()]
no = ctypes.c_void_p(4)
told['refused'] = [
    nvml.nvmlDeviceGetHandleByIndex_v2(3, ctypes.byref(again)),
    nvml.nvmlDeviceGetHandleByUUID(b'GPU-1', ctypes.byref(again)),
    nvml.nvmlDeviceGetName(handle, words, 8),
    nvml.nvmlDeviceGetUUID(handle, words, 40),
    nvml.nvmlSystemGetDriverVersion(words, 10),
    nvml.nvmlDeviceGetName(no, words, 96),
    nvml.nvmlDeviceGetUUID(no, words, 96),
    nvml.nvmlDeviceGetIndex(no, ctypes.byref(major)),
    nvml.nvmlDeviceGetMemoryInfo(no, sizes),
    nvml.nvmlDeviceGetPciInfo_v3(no, place),
    nvml.nvmlDeviceGetCudaComputeCapability(no, ctypes.byref(major), ctypes.byref(minor)),
]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def third() -> dict[str, Any]:
    """What is told of the third device, the only one of three that the process sees."""
    options = ("--devices", "3", "--capacity", "1GiB", "--name", "some GPU", "--capability", "8.6")
    done = run(ASKED, *options, variables={"CUDA_VISIBLE_DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_it_begins_ends_and_names_a_driver(third: dict[str, Any]) -> None:
    assert third["began"] == [0, 0]
    assert re.fullmatch(r"580(\.\d+)+", third["driver"])


def test_memory_is_that_of_the_device_with_this_number(third: dict[str, Any]) -> None:
    assert third["before"] == [[1 << 30, 0]] * 3
    assert third["after"] == [[1 << 30, 0], [1 << 30, 0], [1 << 30, 256 << 20]]


def test_a_device_is_the_one_that_cuda_calls_so(third: dict[str, Any]) -> None:
    uuid, bus = third["of_cuda"]
    assert bytes.fromhex(uuid).rstrip(b"\0") == b"standin-2"
    assert third["uuid"] == f"GPU-{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
    assert bus == "0000:00:02.0"
    assert third["found"] == [0, 2, True]
    assert (third["bus"], third["index"]) == ([0, 3], 2)
    assert third["place"] == [bus, 0, 0, 2, f"0000{bus}"]


def test_a_device_has_the_name_and_capability_that_were_asked_for(third: dict[str, Any]) -> None:
    assert third["name"] == "some GPU"
    assert third["capability"] == [0, 8, 6]


def test_what_is_not_there_and_what_has_no_room_is_refused(third: dict[str, Any]) -> None:
    assert third["refused"] == [2, 6, 7, 7, 7, 2, 2, 2, 2, 2, 2]
