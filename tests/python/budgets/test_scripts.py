"""A script's budget: `gmlake forecast --max` and `--baseline`, and their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import main
from gmlake.standin import forecast_command
from gmlake.standin.beyond import beyond
from gmlake.standin.devices import DEVICES
from gmlake.standin.forecasts import Forecast, PolicyNeed
from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture(scope="module")
def found() -> Forecast:
    """A forecast of a recorded training."""
    seen = gmlake.load(ROOT / "examples/traces/gpt2-xl.gmtrace")
    peak = max(one.trace.peak_live_bytes for one in seen)
    return Forecast(
        *("train.py", DEVICES["l4"], "2.11.0", 5, "steps repeat", peak),
        beyond=beyond({}, world=1, is_checked=True),
        needs=(PolicyNeed("caching", 3 * GIB, 2 * GIB, 2 * GIB, fits=True),),
        least_live_bytes=peak,
        most_live_bytes=peak,
        snapshot=seen,
    )


@pytest.fixture
def command(found: Forecast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command for a script with this forecast, changed: its exit code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()

    def run(*words: str, **changes: Any) -> int:
        made = replace(found, **changes)
        monkeypatch.setattr(forecast_command, "forecast", lambda *_, **__: made)
        return main(["forecast", *words, "train.py", "--lr", "1"])

    return run


def test_a_limit_is_kept_or_not_or_that_is_not_known(
    command: Callable[..., int], found: Forecast, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--max", str(found.peak_live_bytes)) == 0
    assert capsys.readouterr().err == ""
    assert command("--max", str(found.peak_live_bytes - 1)) == 4
    assert "gmlake: train.py --lr 1 needs 38.5 GiB of GPU memory; its limit is 38.5 GiB\n  " in (
        capsys.readouterr().err
    )
    assert command("--max", "40GiB", least_live_bytes=GIB, most_live_bytes=41 * GIB) == 3
    assert "train.py --lr 1 needs 1.00 GiB to 41.0 GiB; its limit is 40.0 GiB\n" in (
        capsys.readouterr().err
    )
    assert command("--max", "38GiB", least_live_bytes=GIB, most_live_bytes=41 * GIB) == 3
    assert command("--max", "40GiB", most_live_bytes=40 * GIB) == 0


def test_what_the_device_lacks_is_said_by_its_own_code(
    command: Callable[..., int], found: Forecast
) -> None:
    needs = (replace(found.needs[0], fits=False),)
    assert command("--max", "40GiB", needs=needs) == 1
    assert command("--max", "1GiB", needs=needs) == 4


def test_a_baseline_is_written_and_kept_and_exceeded(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("--baseline", "known.json") == 3
    assert "train.py --lr 1 is not in known.json: --update adds it" in capsys.readouterr().err
    assert command("--baseline", "known.json", "--update") == 0
    assert command("--baseline", "known.json") == 0
    assert capsys.readouterr().err == ""
    assert command("--baseline", "known.json", rank=1, world=4) == 3
    assert "train.py --lr 1 (rank 1 of 4) is not in" in capsys.readouterr().err

    text = (tmp_path / "known.json").read_text(encoding="utf-8")
    known = json.loads(text)
    (one,) = known["gmlake-budgets-1"].values()
    one["lines"][next(iter(one["lines"]))] -= GIB
    one["peak_bytes"] -= GIB
    (tmp_path / "known.json").write_text(json.dumps(known), encoding="utf-8")
    assert command("--baseline", "known.json", "--max", "40GiB") == 4
    said = capsys.readouterr().err
    assert "needs 38.5 GiB of GPU memory: 1.00 GiB more than its baseline of 37.5 GiB\n" in said
    assert "\n  +1.00 GiB at " in said
    assert command("--baseline", "known.json", "--update") == 0
    assert (tmp_path / "known.json").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--update",), "--update needs --baseline FILE"),
        (("--baseline", "train.py"), "train.py is no baseline of GPU memory"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_script_runs(
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr(forecast_command, "on_signals", None)
    assert command(*words) == 2
    assert said in capsys.readouterr().err


def test_a_server_has_no_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "--max", "1GiB", "--", "vllm", "serve", "model"]) == 2
    assert "--max and --baseline are for a training, not for a server" in capsys.readouterr().err


SCRIPT = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for _ in range(4):
    hidden = model(torch.ones(4096, 1024, device="cuda"))
    kept = hidden{more}
    kept.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_a_script_that_needs_more_is_told_by_which_line(tmp_path: Path) -> None:
    def forecast(*words: str, more: str = "") -> tuple[int, str]:
        (tmp_path / "train.py").write_text(SCRIPT.format(more=more), encoding="utf-8")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "gmlake",
                "forecast",
                "--baseline",
                "b.json",
                *words,
                "train.py",
            ],
            cwd=tmp_path,
            env={name: text for name, text in os.environ.items() if name[:7] != "GMLAKE_"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    assert forecast("--update") == (0, "")
    assert forecast("--max", "1GiB") == (0, "")
    code, said = forecast(more=".exp()")
    assert code == 4, said
    assert "16.0 MiB more than its baseline of" in said
    assert "  +16.0 MiB at train.py:7, activations: kept = hidden.exp()\n" in said
