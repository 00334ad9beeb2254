"""gmlake top: devices as NVML tells of them, ranks side by side, the last minute."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gmlake.tables import as_text
from gmlake.watching.counters import Counters
from gmlake.watching.devices import Device
from gmlake.watching.neighbours import Neighbour
from gmlake.watching.table import Interval, picture

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GIB = 1 << 30
# Two devices of 80 GiB; of the first 50 GiB are in use, of the second 1.
NVML = """
#include <stdio.h>
static int numbers[] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{ *out = &numbers[index]; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out)
{
    out[0] = 80ULL << 30;
    out[2] = (*(int *)device ? 1ULL : 50ULL) << 30;
    out[1] = out[0] - out[2];
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned size)
{ snprintf(out, size, "GPU-%d0af", *(int *)device); return 0; }
int nvmlDeviceGetName(void *device, char *out, unsigned size)
{ (void)device; snprintf(out, size, "A device"); return 0; }
"""
PUBLISHER = """
import gmlake, sys
with gmlake.Lake("sim", capacity="60GiB") as lake:
    gmlake.publish(lake)
    blocks = [lake.allocate(10 << 30) for _ in range(int(sys.argv[1]))]
    lake.free(blocks.pop())
    print("ready", flush=True)
    sys.stdin.readline()
"""


def device(index: int = 0, used: int = 50 * GIB) -> Device:
    return Device(index, f"GPU-{index}0af", "A device", 80 * GIB, used)


def interval(pid: int, live: int, reserved: int, host: int = 0, **more: Any) -> Interval:
    fields: dict[str, Any] = dict.fromkeys(Counters.__dataclass_fields__, 0)
    fields |= {
        "pid": pid,
        "live_bytes": live,
        "reserved_bytes": reserved,
        "host_bytes": host,
        "peak_reserved_bytes": reserved,
        "states": dict.fromkeys(("exact", "split", "stitch", "grow", "oom", "plan"), 0),
    }
    return Interval(Counters(**fields), None, 1.0, **more)


def shown(*intervals: Interval) -> list[str]:
    return lines_of(picture(list(intervals), {}))


def lines_of(parts: Iterable[Any]) -> list[str]:
    return [line for part in parts for line in as_text(part, 80).splitlines()]


def test_a_bar_says_whose_a_device_is() -> None:
    lines = shown(interval(7, 20 * GIB, 30 * GIB, device=device()))
    assert lines[0] == "GPU 0  A device: 50.0 GiB of 80.0 GiB in use"
    bar, told = lines[1].strip(), lines[2].strip()
    # 36 characters for 80 GiB: 20 live, 10 idle, 20 of others, 30 free.
    assert bar == "[" + 9 * "█" + 5 * "▒" + 8 * "░" + 14 * " " + "]"
    assert told == "█ live 20.0 GiB  ▒ reserved, idle 10.0 GiB  ░ all else 20.0 GiB"


def test_what_lies_on_the_host_is_not_the_devices() -> None:
    full = interval(7, 34 * GIB, 31 * GIB, host=4 * GIB, device=device())
    lines = shown(full)
    assert "█ live 30.0 GiB  ▒ reserved, idle 1.00 GiB" in lines[2]
    assert any("on the" in line for line in lines)
    assert any("31.0 GiB" in line and "4.00 GiB" in line for line in lines)
    assert replace(full.now, largest_free_bytes=GIB // 2).fragmentation == 0.5
    assert not any("on the" in line for line in shown(interval(7, GIB, GIB)))


def test_processes_of_one_device_are_added_up() -> None:
    one = interval(7, 10 * GIB, 10 * GIB, device=device())
    other = interval(8, 5 * GIB, 20 * GIB, device=device())
    elsewhere = interval(9, GIB // 2, GIB, device=device(1, GIB))
    lines = shown(one, other, elsewhere)
    assert "█ live 15.0 GiB  ▒ reserved, idle 15.0 GiB  ░ all else 20.0 GiB" in lines[2]
    assert lines[3].startswith("GPU 1 ")
    assert "░ all else 0 B" in lines[5]


def test_a_process_that_shares_a_device_says_what_it_has_or_why_not() -> None:
    sharers = {0: [Neighbour(7, 0, 30 * GIB, 10 * GIB, ""), Neighbour(0, 0, 0, 0, "stopped")]}
    assert lines_of(picture([], sharers))[:2] == [
        "process 7 shares GPU 0: 30.0 GiB held, 10.0 GiB of it idle",
        "a process of another container shares GPU 0, and is passed over: stopped",
    ]


def test_the_last_minute_is_a_line() -> None:
    history = ((59.0, 0), (31.0, 4 * GIB), (1.0, 8 * GIB), (0.0, 2 * GIB))
    (row,) = (line for line in shown(interval(7, GIB, GIB, history=history)) if "7 " in line)
    # 12 characters of 5 seconds; the highest of each, nothing where nobody looked.
    assert "▁    ▅     █" in row
    assert "▁" not in "".join(shown(interval(7, GIB, GIB, history=((0.0, GIB),))))


def test_nothing_is_wider_than_a_terminal() -> None:
    history = tuple((float(age), GIB) for age in range(59, -1, -1))
    many = [
        interval(
            1000000 + rank, 70 * GIB, 75 * GIB, rank=rank, ranks=128, history=history,
            device=device(rank % 8, 80 * GIB), command="python " + "x" * 300,
        )
        for rank in range(16)
    ]  # fmt: skip
    assert max(map(len, shown(*many))) <= 80


def test_top_asks_nvml_and_reads_the_environment(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler for an NVML to be made with")
    source = tmp_path / "nvml.c"
    source.write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    runtime = tmp_path / "run"
    runtime.mkdir(0o700)
    base = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(blocks)],
            env=base | {"RANK": str(rank), "WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, blocks in ((1, 2), (0, 3))
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        top = [sys.executable, "-m", "gmlake", "top"]
        once = subprocess.run(
            [*top, "--once"], env=base, capture_output=True, text=True, check=True
        )
        told = subprocess.run(
            [*top, "--json"], env=base, capture_output=True, text=True, check=True
        )
    finally:
        for process in processes:
            process.communicate("\n", timeout=600)
    lines = once.stdout.splitlines()
    assert lines[0] == "GPU 0  A device: 50.0 GiB of 80.0 GiB in use"
    assert "█ live 30.0 GiB  ▒ reserved, idle 20.0 GiB  ░ all else 0 B" in lines[2]
    assert "rank 0 holds most: 30.0 GiB, 10.0 GiB more than the least" in once.stdout
    answer = json.loads(told.stdout)
    assert [entry["rank"] for entry in answer["lakes"]] in ([0, 1], [1, 0])
    assert {entry["ranks"] for entry in answer["lakes"]} == {2}
    assert {entry["device_index"] for entry in answer["lakes"]} == {0}
    assert [one["used_bytes"] for one in answer["devices"]] == [50 * GIB, GIB]
