"""What PyTorch's lakes publish for `gmlake top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.standin.gmlake_run import RUN, run

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
TWO = ("--devices", "2", "--capacity", "256MiB")
PROGRAM = """
import json, os, subprocess, sys, time, torch
import gmlake
{begin}
tensors = [torch.empty(size << 20, device=f"cuda:{{number}}", dtype=torch.uint8)
           for number, size in enumerate((4, 8))]
lakes = []
until = time.monotonic() + {seconds}
while len(lakes) < 2 and time.monotonic() < until:
    command = [sys.executable, "-m", "gmlake", "top", str(os.getpid()), "--json"]
    told = subprocess.run(command, capture_output=True, text=True).stdout
    lakes = json.loads(told)["lakes"] if told else []
print(json.dumps({{"live": {{lake["device"]: lake["live_bytes"] for lake in lakes}}}}))
"""


@pytest.mark.parametrize(
    ("begin", "variables", "expected"),
    [
        pytest.param(
            *("", {"GMLAKE_TOP": "1"}, {"0": 4 * MIB, "1": 8 * MIB}), marks=pytest.mark.long
        ),
        ("gmlake.publish()", {}, {"0": 4 * MIB, "1": 8 * MIB}),
        pytest.param("", {}, {}, marks=pytest.mark.long),
    ],
    ids=["variable", "call", "neither"],
)
def test_every_device_is_published(
    begin: str, variables: dict[str, str], expected: dict[str, int], tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(begin=begin, seconds=600 if expected else 2))
    variables = {**variables, "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = run(*RUN, str(script), settings=TWO, variables=variables)
    assert ended.code == 0, ended.errors
    assert ended.result == {"live": expected}
    assert not list(tmp_path.glob("gmlake/*"))
