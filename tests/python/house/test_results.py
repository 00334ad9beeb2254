"""Committed results: what made each of them, which command makes it again, and who uses it."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT
from sources import named, offenders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
WITHOUT_GPU = ROOT / "benchmarks" / "results.sh"
WITH_GPU = ROOT / "benchmarks" / "gpu" / "run.sh"
RECORDED = "recordings of workloads/record.py on a GPU and on the stand-in, which are not kept"
ELSEWHERE = {
    "driver_costs_h100": "gpu/run.sh costs, on another GPU",
    "forecast_compiled_h100": "gpu/run.sh forecasts, the compiled programs alone, on an H100",
    "forecast_programs_h100": "gpu/run.sh forecasts, on an H100",
    "gpu_accesses": "benchmarks/accesses.py, with the programs built beforehand",
    "gpu_four_sharded": "gpu/run.sh four",
    "gpu_four_transports": "gpu/run.sh four",
    "overhead_h100": "gpu/run.sh overhead, on another GPU",
    "servers": "benchmarks/result.py, with a Python that has vLLM",
    "validation_h200": RECORDED,
    "validation_standin": RECORDED,
}

OWED = {
    "driver_costs": "a GPU of a quiet host",
    "validation_h200": "recordings that are not kept",
    "versions": "PyTorch 2.13.0, 6 GB",
}
"""Results that are not what they should be, and what to measure them anew takes."""


def runs(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what is told of each run, also of each part of a joined result."""
    if isinstance(value, dict):
        if "command" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from runs(each)


@cache
def runs_of(path: Path) -> list[dict[str, Any]]:
    return list(runs(json.loads(path.read_text(encoding="utf-8"))))


# ---- the commit


def git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if not done.returncode else ""


@cache
def log() -> tuple[str, ...]:
    """Return every commit that led to this one; a test that needs them is skipped without."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is no clone, so there is no log to look a commit up in")
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("the clone is shallow: git fetch --unshallow")
    return tuple(sorted(git("rev-list", "HEAD").split()))


def wrong_with_commit(commit: object, known: Iterable[str]) -> str:
    """Return what is wrong with the commit that a run names; nothing where it is in the log."""
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        return f"{commit!r} is no commit of a clean tree"
    if not any(each.startswith(commit) for each in known):
        return f"{commit} is not in the log"
    return ""


def wrong_commits(path: Path) -> list[str]:
    known = log()
    found = (wrong_with_commit(run.get("commit"), known) for run in runs_of(path))
    return [each for each in found if each]


def test_the_commits_of_results_are_in_the_log_but_for_those_that_are_owed() -> None:
    found = offenders(RESULTS, wrong_commits)
    owed = {named(path) for path in RESULTS if path.stem in OWED}
    assert {name: wrong for name, wrong in found.items() if name not in owed} == {}
    assert owed - found.keys() == set(), "they are as they should be: take them out of OWED"
    assert OWED.keys() <= {path.stem for path in RESULTS}


def test_which_commits_are_refused() -> None:
    known = ["0123456789abcdef0123456789abcdef01234567"]
    assert wrong_with_commit("0123456", known) == ""
    assert "not in the log" in wrong_with_commit("1234567", known)
    for said in (None, "", "unknown", "0123456-dirty", "012345", "the commit after 0123456"):
        assert "no commit of a clean tree" in wrong_with_commit(said, known)


# ---- the command


def script_of(words: list[str]) -> str:
    """Return the file that a command runs."""
    is_module = "-m" in words[:2]
    name = words[words.index("-m") + 1] if is_module else words[1]
    return f"benchmarks/{name.replace('.', '/')}.py" if is_module else name


@cache
def options_of(path: Path) -> frozenset[str]:
    """Return the options that a file gives to a parser of its own."""
    calls = (
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and {getattr(node.func, "attr", ""), getattr(node.func, "id", "")} & {"add_argument", "add"}
    )
    words = (word.value for call in calls for word in call.args if isinstance(word, ast.Constant))
    return frozenset(word for word in words if isinstance(word, str) and word.startswith("-"))


def wrong_with_command(command: str) -> str:
    """Return why a command cannot be run any more; nothing where it can."""
    words = shlex.split(command)
    if words[0] != "python":
        return f"{words[0]} is not python"
    script = ROOT / script_of(words)
    if (script.is_absolute() and ROOT not in script.parents) or not script.is_file():
        return f"there is no {script_of(words)}"
    asked = {word.partition("=")[0].rstrip(",") for word in words[2:] if word.startswith("--")}
    unknown = sorted(asked - options_of(script))
    return f"{script_of(words)} does not take {', '.join(unknown)}" if unknown else ""


def wrong_commands(told: list[dict[str, Any]]) -> list[str]:
    found = [wrong_with_command(run["command"]) if run["command"] else "" for run in told]
    without = [] if told and all(run["command"] for run in told) else ["does not say what made it"]
    return [*without, *filter(None, found)]


def test_results_say_what_made_them_and_it_can_be_run() -> None:
    assert offenders(RESULTS, lambda path: wrong_commands(runs_of(path))) == {}
    assert wrong_commands([]) == wrong_commands([{"command": ""}]) == ["does not say what made it"]
    assert wrong_commands([{"command": "python gone.py"}]) == ["there is no gone.py"]


def test_which_commands_are_refused() -> None:
    assert wrong_with_command("python benchmarks/speed.py --programs FOLDER --write") == ""
    assert wrong_with_command("python -m gpu.turns --pairs 150, three times") == ""
    assert wrong_with_command("python -m gpu.against --rounds=3") == ""
    for command, why in {
        "python benchmarks/gone.py": "there is no benchmarks/gone.py",
        "python -m gpu.gone --write": "there is no benchmarks/gpu/gone.py",
        "python /elsewhere/benchmarks/speed.py": "there is no /elsewhere",
        "python benchmarks/speed.py --rounds 3": "does not take --rounds",
        "sh benchmarks/results.sh": "is not python",
    }.items():
        assert why in wrong_with_command(command)


# ---- who uses it


@cache
def documents() -> str:
    every = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in every)


def is_used(name: str) -> bool:
    return re.search(rf"\b{name}(?:\.json\b|: \w+ -->)", documents()) is not None


def test_a_document_uses_each_result() -> None:
    assert [path.stem for path in RESULTS if not is_used(path.stem)] == []
    assert not is_used("gone")


def parts(script: Path) -> set[str]:
    cases = re.split(r"case \$(?:wanted|1) in", script.read_text(encoding="utf-8"))[1]
    names = re.findall(r"^    ([\w |]+)\)", cases.partition("\n}")[0], re.MULTILINE)
    return {name for line in names for name in line.split(" | ")}


def test_a_command_makes_every_result_again() -> None:
    kept = {path.stem for path in RESULTS}
    on_a_gpu = {name.removeprefix("gpu_") for name in kept - ELSEWHERE.keys()} & parts(WITH_GPU)
    without = set(listed(WITHOUT_GPU, "ALL"))
    left = kept - without - {f"gpu_{name}" for name in on_a_gpu}
    assert left == {*ELSEWHERE, "driver_costs"}
    assert "benchmarks/driver_costs.py" in WITH_GPU.read_text(encoding="utf-8")
    assert parts(WITHOUT_GPU) <= without <= kept


def listed(script: Path, *names: str) -> list[str]:
    text = script.read_text(encoding="utf-8")
    lists = (re.findall(rf'^{name}="([^"]*)"', text, re.MULTILINE) for name in names)
    return [part for (words,) in lists for part in words.split()]


def test_all_parts_are_listed_once() -> None:
    names = listed(WITH_GPU, "ALL", "NAMED")
    assert sorted(names) == sorted(parts(WITH_GPU))
