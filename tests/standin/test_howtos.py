"""The examples of the how-tos, by the commands that their page gives."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.standin.gmlake_run import Ended, finish, start
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "howto.md"
EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "howto").glob("*.py"))
ALWAYS = ("accelerate_loop",)
NEEDS = {
    "hf_trainer": ("transformers", "accelerate"),
    "lightning_fit": ("lightning",),
    "accelerate_loop": ("accelerate",),
    "serving": ("transformers",),
    "rl_loop": ("transformers",),
    "lora": ("transformers", "peft"),
    "megatron_gpt": ("megatron",),
}
COMMAND = re.compile(r"^```\n((?:python|gmlake) .*)\n```$", re.MULTILINE)
PROGRAMS = {"python": [], "gmlake": ["-m", "gmlake"]}


def _processes(name: str) -> int:
    return 2 if name in ("fsdp2", "megatron_gpt") else 1


def run(name: str, folder: Path) -> Ended:
    """Run the command of an example in a folder of its own."""
    commands = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    (command,) = (each for each in commands if each.endswith(f"examples/howto/{name}.py"))
    program, *words = shlex.split(command)
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    settings = ("--backed", "--devices", str(_processes(name)), "--capacity", "1GiB")
    return finish(
        start(
            *PROGRAMS[program],
            *words,
            settings=settings,
            variables={"BACKEND": "gloo"},
            folder=folder,
        )
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name in ALWAYS else pytest.mark.long) for name in EXAMPLES
    ],
)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    for needed in NEEDS.get(found, ()):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    return found


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(name)


@pytest.fixture(scope="module")
def ended(name: str, folder: Path) -> Ended:
    return run(name, folder)


def test_an_example_runs_and_is_served(name: str, ended: Ended) -> None:
    assert ended.code == 0, ended.errors
    assert "GmlakeWarning" not in ended.errors
    if name != "plain_loop":  # which prints itself what it saw
        assert len(ended.reports) == _processes(name)
