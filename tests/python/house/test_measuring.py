"""What measures everything again: only the commit of a clean tree, part by part or side by side."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CLEAN = "0123456"


def copied(folder: Path, **variables: str) -> dict[str, str]:
    """Take the two scripts to a folder without a clone; return an environment for them."""
    for name in ("results.sh", "commit.py", "gpu/run.sh"):
        path = folder / "benchmarks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "benchmarks" / name, path)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHON": sys.executable, **variables}


def started(folder: Path, script: str, *words: str, **variables: str) -> Any:
    command = [str(folder / "benchmarks" / script), *words]
    environment = copied(folder, **variables)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("script", ["results.sh", "gpu/run.sh"])
@pytest.mark.parametrize(
    ("is_cloned", "named", "why"),
    [
        (False, "", "GMLAKE_COMMIT does not name the commit"),
        (False, f"{CLEAN}-dirty", "the tree has changes"),
        (False, "the one after", "is no commit of a clean tree"),
        (True, "", "the tree has changes; commit them first"),
        (True, CLEAN, "the tree has changes; commit them first"),
    ],
)
def test_what_has_no_commit_is_not_measured(
    tmp_path: Path, *, script: str, is_cloned: bool, named: str, why: str
) -> None:
    if is_cloned:
        made(tmp_path)
        (tmp_path / "more").touch()
    part = "speed" if script == "results.sh" else "turns"
    done = started(tmp_path, script, part, GMLAKE_COMMIT=named)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def made(folder: Path) -> None:
    """Make a clone of these scripts, with one commit."""
    copied(folder)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)  # noqa: S607


def test_results_do_not_count_as_changes(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir()
    (tmp_path / "benchmarks" / "results" / "x.json").touch()
    command = [sys.executable, str(tmp_path / "benchmarks" / "commit.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"[0-9a-f]{7,}\n", done.stdout)
    assert head.stdout.startswith(done.stdout.strip())


# ---- parts side by side


PYTHON_OF_A_GPU = """#!/bin/sh
case "$*" in
*commit.py) echo 0123456 ;;
-c*) ;;
*)
    echo "$(date +%s.%N) ${CUDA_VISIBLE_DEVICES:-all} begins $*" >>"$NOTES"
    # Side by side: the first one ends only when another has begun.
    tries=0
    while [ -n "${CUDA_VISIBLE_DEVICES:-}" ] && [ $tries -lt 600 ] &&
        [ "$(grep -c begins "$NOTES")" -lt 2 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    echo "said by $*"
    echo "$(date +%s.%N) ${CUDA_VISIBLE_DEVICES:-all} ends $*" >>"$NOTES"
    case "$*" in *gpu.graphs*) exit 3 ;; esac
    ;;
esac
"""


def on_gpus(folder: Path, count: int, *parts_: str) -> tuple[Any, list[list[str]]]:
    """Run parts with a Python that only notes what it is asked; return the notes in their order."""
    python, notes = folder / "python", folder / "notes"
    python.write_text(PYTHON_OF_A_GPU, encoding="utf-8")
    python.chmod(0o755)
    notes.touch()
    variables = {"PYTHON": str(python), "NOTES": str(notes), "LOGS": str(folder / "logs")}
    done = started(folder, "gpu/run.sh", *parts_, GPUS=f"{count}", **variables)
    return done, [line.split()[1:] for line in sorted(notes.read_text().splitlines())]


def test_parts_run_side_by_side_and_those_of_two_gpus_alone(tmp_path: Path) -> None:
    asked = ("transports", "turns", "streams", "graphs", "loop", "elastic")
    done, notes = on_gpus(tmp_path, 2, *asked)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "failed: graphs"
    said = done.stdout.splitlines()[-1]
    assert said.startswith(f"ran at {CLEAN}: ")
    assert sorted(said.split()[3:]) == ["elastic", "loop", "streams", "transports", "turns"]
    running: dict[str, str] = {}
    most = 0
    for device, what, *command in notes:
        if what == "begins":
            assert device not in running
            assert not (running and "gpu.transports" in (*command, *running.values()))
            running[device] = command[-2]
        else:
            del running[device]
        most = max(most, len(running))
    assert most == 2
    assert {device for device, *_ in notes} == {"0", "1", "all"}
    assert [device for device, *_, part, _ in notes if part == "gpu.transports"] == ["all"] * 2
    assert (tmp_path / "logs" / "turns.log").read_text() == "said by -m gpu.turns --write\n"


def test_a_part_of_several_gpus_that_is_named_has_all_of_them(tmp_path: Path) -> None:
    done, notes = on_gpus(tmp_path, 2, "turns", "four")
    assert done.returncode == 0, done.stderr
    asked = [[device, *command[:2]] for device, what, *command in notes if what == "begins"]
    assert [each for each in asked if each[0] == "all"] == [
        ["all", "-m", f"gpu.{name}"] for name in ("against", "loop", "transports")
    ]


def test_parts_run_in_their_order_on_one_gpu(tmp_path: Path) -> None:
    done, notes = on_gpus(tmp_path, 1, "turns", "graphs", "transports", "loop")
    assert done.returncode == 1
    assert [part for _, what, _, part, _ in notes if what == "begins"] == [
        *("gpu.turns", "gpu.graphs", "gpu.loop", "gpu.transports")
    ]
    assert {device for device, *_ in notes} == {"all"}
    assert f"ran at {CLEAN}: turns loop transports" in done.stdout


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    done, notes = on_gpus(tmp_path, 1, "turns", "unheard")
    assert (done.returncode, notes) == (2, [])
    assert "no part is called 'unheard'; there are varying " in done.stderr
