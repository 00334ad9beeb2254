"""The action for GitHub: its steps are run as a runner runs them, with programs that note how."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, NamedTuple

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")
GIVEN = {
    "inputs.requirements": "needed.txt",
    "inputs.tests": "test_it.py -k plain",
    "github.token": "secret",
    "github.event.pull_request.number": "7",
}


class Step(NamedTuple):
    """A step with a shell: what it runs, and the variables that it is given."""

    script: str
    variables: Mapping[str, str]


def steps() -> list[Step]:
    """Return the steps that run something, with what the runner puts for expressions."""
    inputs, _, rest = ACTION.partition("\nruns:\n")
    defaults = re.findall(r'\n  (\w+):\n    description: .*\n    default: "?([^"\n]*)', inputs)
    values = {f"inputs.{name}": value for name, value in defaults} | GIVEN
    found = []
    for text in rest.split("\n    - ")[1:]:
        script = re.search(r"^ *run: (?:\|\n((?:        .*\n?)+)|(.+))", text, re.MULTILINE)
        if script is None:
            assert "uses: " in text
            continue
        assert "shell: bash" in text, "an action has no shell by itself"
        assert "${{" not in script[0], "what is put into a script can end it; use env"
        variables = re.findall(r"^ {8}(\w+): \$\{\{ ([\w.]+) \}\}$", text, re.MULTILINE)
        given = {name: values[place] for name, place in variables}
        found.append(Step(textwrap.dedent(script[1] or script[2]), given))
    return found


class Runner:
    """Runs steps in a folder, where python3, pip and gh write down what they are asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / "programs"
        programs.mkdir()
        here = f'exec {sys.executable} "$@"'
        made = 'mkdir -p "$3/bin" && echo "export ACTIVE=1" > "$3/bin/activate"'
        for name, more in {
            "python3": made,
            "python": here,
            "pip": "",
            "gh": 'cat "${@: -1}"',
        }.items():
            text = f'#!/bin/bash\necho "${{ACTIVE:-0}} {name} $*" >> "$NOTES"\n{more}\n'
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
        self.variables = {
            **{name: text for name, text in os.environ.items() if not name.startswith("GMLAKE_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "NOTES": str(folder / "notes"),
            "HOME": str(folder / "home"),
            "RUNNER_TEMP": str(folder),
            "GITHUB_ACTION_PATH": "/actions/gmlake",
            "GITHUB_REPOSITORY": "someone/project",
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        }

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        """Run a step as the runner does where `shell: bash` is said."""
        (self.folder / "notes").write_text("", encoding="utf-8")
        return subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.script],
            cwd=self.folder,
            env={**self.variables, **step.variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def notes(self) -> list[str]:
        return (self.folder / "notes").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_the_steps_install_measure_and_comment(runner: Runner) -> None:
    install, test, summary, comment = steps()
    assert runner.run(install).returncode == 0
    index = "--index-url https://download.pytorch.org/whl/cu130"
    assert runner.notes() == [
        f"0 python3 -m venv {runner.folder}/home/gmlake-standin",
        f"1 pip install torch==2.11.0 {index}",
        "1 pip install pytest -r needed.txt",
        "1 pip install /actions/gmlake",
    ]
    tests = "def test_plain():\n    pass\n\ndef test_left_out():\n    raise SystemExit\n"
    (runner.folder / "test_it.py").write_text(tests, encoding="utf-8")
    (runner.folder / "home/gmlake-standin/bin/activate").write_text("", encoding="utf-8")
    done = runner.run(test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 deselected" in done.stdout
    assert runner.run(summary).returncode == 0
    said = (runner.folder / "summary").read_text(encoding="utf-8")
    assert said.endswith("0 tests were measured on no device: 0 changed\n```\n")
    done = runner.run(comment)
    assert done.stdout == said
    (note,) = runner.notes()
    assert note.startswith("0 gh pr comment 7 --repo someone/project --edit-last --create-if-none")


def test_a_run_that_measured_nothing_has_no_table_to_show(runner: Runner) -> None:
    *_, summary, comment = steps()
    assert runner.run(summary).returncode == 0
    assert runner.run(comment).returncode == 0
    assert runner.notes() == []
