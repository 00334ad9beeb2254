"""Runs `gmlake forecast` as a user does: in a process that knows nothing of the stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.standin.places import ROOT
from tests.standin.running import PROGRAMS, read_to_the_end

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TRAIN = PROGRAMS / "forecast_train.py"

_OURS = ("GMLAKE_", "LD_PRELOAD", "TRITON_LIBCUDA_PATH", "PYTORCH_", "USE_PYTORCH_KERNEL_CACHE")


def plain_variables(**more: str) -> dict[str, str]:
    """Return the environment of a user: the tests themselves run on the stand-in."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_OURS)}
    return kept | {"COLUMNS": "200"} | more


def _heed_signals() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def start(
    *words: str | Path, variables: Mapping[str, str] | None = None, **more: Any
) -> subprocess.Popen[str]:
    """Start `gmlake` with these words, in a session of its own, as a terminal does.

    What ignores signals, as nohup does, hands that down to all that it starts.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "gmlake", *map(str, words)],
        cwd=more.pop("cwd", ROOT),
        env=plain_variables(**(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heed_signals,  # noqa: PLW1509 (nothing else runs in this process just now)
        **more,
    )


def run(
    *words: str | Path, variables: Mapping[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run `gmlake` with these words to its end."""
    process = start(*words, variables=variables, **more)
    output, errors = read_to_the_end(process, 600)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def forecast(*words: str | Path, **variables: str) -> dict[str, Any]:
    """Return what `gmlake forecast --json` says of a script that can be forecast."""
    done = run("forecast", "--json", *words, variables=variables)
    assert not done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {True: 0, False: 1, None: 3}[found["fits"]]
    return found


def refused(*words: str | Path, **variables: str) -> str:
    """Return why a script was not forecast: one line, and what the script printed last."""
    done = run("forecast", *words, variables=variables)
    assert done.returncode == 2, done.stderr
    assert not done.stdout
    assert done.stderr.startswith("gmlake: ")
    _, *printed = done.stderr.splitlines()
    assert all(line.startswith("  ") for line in printed), done.stderr
    return done.stderr


def needs(found: Mapping[str, Any], figure: str = "smallest_bytes") -> dict[str, int]:
    """Return a figure of each allocator."""
    return {need["policy"]: need[figure] for need in found["needs"]}
