"""Scripts for shells, in the shells that are there."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import gmlake
from gmlake.commands import COMMANDS, main
from running import run

ASKED = {
    "gmlake ": set(COMMANDS),
    "gmlake rep": {"replay", "report"},
    "gmlake replay --p": {"--policy"},
    "gmlake run --policy ": {"all", *gmlake.policies()},
    "gmlake view --replay ex": {"expandable"},
    "gmlake completion f": {"fish"},
    "gmlake query --at ": {"peak", "refusal", "end", "start"},
    "gmlake compare --by o": {"owner"},
}
ASK = {
    "bash": """
COMP_WORDS=("$0" "$@") COMP_CWORD=$#
_shtab_gmlake
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "fish": 'complete --do-complete "$argv"',
}


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_completes(shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    program = run("completion", shell).stdout + ASK[shell]
    for typed, expected in ASKED.items():
        words = typed.split(" ") if shell == "bash" else [typed]
        done = subprocess.run(
            [found, "-c", program, *words], capture_output=True, text=True, check=True
        )
        assert {line.split("\t")[0] for line in done.stdout.splitlines()} == expected, typed


def test_without_shtab_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 2
    assert capsys.readouterr().err.endswith("not installed: pip install shtab\n")
