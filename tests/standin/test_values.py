"""What a program on the stand-in sees of PyTorch: its own results, and the values it knows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin import forecasting
from tests.standin.running import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_thousand_calls_on_the_cpu_are_what_they_are_without_the_stand_in() -> None:
    program = PROGRAMS / "drawn_calls.py"
    done = forecasting.run("run", "--without-gpu", program, "1000", "0")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seen": 1000, "differing": []}


def test_shapes_that_data_decide_are_those_of_the_cpu() -> None:
    program = PROGRAMS / "known_shapes.py"
    watched = forecasting.run("run", "--without-gpu", program, "cuda")
    plain = subprocess.run(
        [sys.executable, str(program), "cpu"],
        env=forecasting.plain_variables(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert watched.returncode == 0, watched.stderr
    assert json.loads(watched.stdout) == json.loads(plain.stdout)


PREAMBLE = """
import torch
from torch import nn
net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def step(x):
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def forecast_of(folder: Path, lines: str, *words: str) -> dict[str, Any]:
    path = folder / "script.py"
    path.write_text(PREAMBLE + lines, encoding="utf-8")
    return forecasting.forecast(*words, path)


def test_rows_that_weights_decide_are_a_range_and_no_fit(tmp_path: Path) -> None:
    found = forecast_of(
        tmp_path,
        """
for _ in range(5):
    x = net(torch.randn(1 << 16, 64).cuda())
    step(x[x[:, 0] > 0].detach().repeat(1, 1))
""",
    )
    kept = 2 * (1 << 16) * 64 * 4  # what a mask selects, and its copy
    assert found["fits"] is None
    assert found["most_live_bytes"] - found["least_live_bytes"] >= kept
    assert found["least_live_bytes"] < found["peak_live_bytes"] < found["most_live_bytes"]
    (line,) = found["unknown"]
    assert "script.py:13: a mask as an index" in line


def test_a_truth_value_that_is_not_known_is_said(tmp_path: Path) -> None:
    loop = """
ids = torch.zeros(4, 1, dtype=torch.long, device="cuda")
with torch.inference_mode():
    while ids.shape[1] < 50:
        token = torch.multinomial(net(torch.randn(4, 64).cuda()).softmax(-1), 1)
        ids = torch.cat([ids, token], 1)
        if (token == 63).all():
            break
assert ids.shape[1] == 50
"""
    found = forecast_of(tmp_path, loop)
    assert found["fits"] is True
    assert "script.py:16 asks 49 times for a truth value that is not known" in found["notes"][-1]
    found = forecast_of(tmp_path, "if net(torch.ones(64).cuda()).sum() > 3:\n    step(0)\n")
    assert found["fits"] is None
    assert "script.py:10 asks for a truth value that is not known" in found["unknown"][0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            """
for n in range(9):
    if net(torch.randn(9, 64).cuda()).mean().item() < 0.1:
        break
    step(torch.randn(9 << n, 64).cuda())
""",
            "the program ended after it compared a number that is not known at",
        ),
        (
            """
kept = []
for _ in range(9):
    kept.append(torch.ones(1 << 20).cuda())
    step(torch.randn(9, 64).cuda())
""",
            "what is live after a step grows by 4.00 MiB in each: another one needs more",
        ),
    ],
    ids=["early stop", "leak"],
)
def test_what_would_need_more_is_no_fit(lines: str, said: str, tmp_path: Path) -> None:
    found = forecast_of(tmp_path, lines)
    assert found["fits"] is None
    assert said in found["unknown"][0]


@pytest.mark.long
def test_a_program_that_adapts_to_refusals_is_refused_what_the_device_has_not(
    tmp_path: Path,
) -> None:
    lines = """
batch = 1 << 24
while batch:
    try:
        for _ in range(5):
            step(torch.randn(batch, 64, device="cuda"))
        break
    except torch.OutOfMemoryError:
        optimizer.zero_grad()
        batch //= 2
"""
    found = forecast_of(tmp_path, lines, "--on", "4GiB")
    assert found["fits"] is True
    assert 1 << 30 < found["peak_live_bytes"] <= (4 << 30) - (621 << 20)
    assert "times and went on, as on this device" in found["notes"][0]


@pytest.mark.long
def test_all_of_a_script_is_run_where_that_is_asked_for(tmp_path: Path) -> None:
    lines = """
for _ in range(9):
    step(torch.randn(9, 64).cuda())
torch.ones(50 << 20, device="cuda")
"""
    found = forecast_of(tmp_path, lines, "--to-end")
    assert (found["steps"], found["why"]) == (9, "the program ended")
    assert found["peak_live_bytes"] > 200 << 20
    assert forecast_of(tmp_path, lines)["peak_live_bytes"] < 100 << 20


@pytest.mark.long
def test_without_an_optimizer_passes_that_repeat_are_the_steps(tmp_path: Path) -> None:
    found = forecast_of(
        tmp_path,
        "del optimizer\nfor _ in range(900):\n    net(torch.randn(9, 64).cuda()).sum().backward()\n"
        "    net.weight.grad = net.bias.grad = None",
    )
    assert (found["steps"], found["why"]) == (5, "steps repeat")


@pytest.mark.long
def test_gradients_that_are_accumulated_are_one_step_of_the_optimizer(tmp_path: Path) -> None:
    found = forecast_of(
        tmp_path,
        """
for _ in range(9):
    for many in range(30):
        net(torch.randn(9 + many, 64).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    )
    assert (found["steps"], found["why"]) == (5, "steps repeat")
