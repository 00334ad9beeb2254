"""What a program on the stand-in sees of PyTorch: its own results, and the values it knows."""

from __future__ import annotations

import json

from tests.standin import forecasting
from tests.standin.running import PROGRAMS


def test_a_thousand_calls_on_the_cpu_are_what_they_are_without_the_stand_in() -> None:
    program = PROGRAMS / "drawn_calls.py"
    done = forecasting.run("run", "--without-gpu", program, "1000", "0")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seen": 1000, "differing": []}
