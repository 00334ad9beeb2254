"""The examples of the how-tos, by the commands that their pages give."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.standin.gmlake_run import Ended, finish, start
from tests.standin.places import ROOT

import gmlake

if TYPE_CHECKING:
    from pathlib import Path

PAGES = ROOT / "docs" / "howto"
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
    """Run the command of a page in a folder of its own."""
    (command,) = COMMAND.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
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


def rows_of(text: str, name: str) -> list[float]:
    """The values of a line that a trainer printed as a part of a dict."""
    return [float(found) for found in re.findall(rf"'{name}': '?([\d.e-]+)'?", text)]


def numbers(text: str, pattern: str) -> list[int]:
    return [int(found) for found in re.findall(pattern, text)]


def check_plain_loop(ended: Ended, folder: Path) -> None:
    assert "fragmentation" in ended.output
    seen = gmlake.Snapshot.load(folder / "memory.pickle")
    labels = [label for _, label in seen[0].marks]
    assert [label for label in labels if label.startswith("step")] == [
        f"step {index}" for index in range(8)
    ]
    assert seen[0].peak.live_bytes > 0


def check_page(folder: Path) -> None:
    text = (folder / "memory.html").read_text(encoding="utf-8")
    assert "evaluation" in text
    assert "step 0" in text


def check_hf_trainer(ended: Ended, folder: Path) -> None:
    assert len(rows_of(ended.output, "memory/reserved_gib")) == 4 + 2 + 1  # and at the end
    assert len(rows_of(ended.output, "eval_loss")) == 2
    check_page(folder)


def check_lightning_fit(_: Ended, folder: Path) -> None:
    (path,) = (folder / "logs").rglob("metrics.csv")
    lines = path.read_text(encoding="utf-8").splitlines()
    column = lines[0].split(",").index("memory/reserved_gib")
    assert len([line for line in lines[1:] if line.split(",")[column]]) == 6
    check_page(folder)


def check_accelerate_loop(ended: Ended, folder: Path) -> None:
    assert len(rows_of(ended.output, "memory/reserved_gib")) == 8
    check_page(folder)


def check_ranks(ended: Ended, _: Path) -> None:
    assert sorted(one["name"] for one in ended.reports) == ["rank 0", "rank 1"]


def check_fsdp2(ended: Ended, folder: Path) -> None:
    check_ranks(ended, folder)
    assert all(one["lent"] for one in ended.reports)


def check_compiled(ended: Ended, _: Path) -> None:
    plain, with_graphs = numbers(ended.output, r": (\d+) MiB reserved")
    assert with_graphs > plain > 0


def check_serving(ended: Ended, _: Path) -> None:
    live, reserved = numbers(ended.output, r"(\d+) MiB")
    assert 0 < live <= reserved


def check_rl_loop(ended: Ended, _: Path) -> None:
    reserved = numbers(ended.output, r": (\d+) MiB reserved")
    assert len(reserved) == 6
    assert reserved[3:] == [reserved[2]] * 3  # the longest answers were in the third round


def check_lora(ended: Ended, _: Path) -> None:
    live, reserved = numbers(ended.output, r"(\d+) MiB")
    assert 0 < live <= reserved


def check_elastic_cache(ended: Ended, _: Path) -> None:
    held, most = numbers(ended.output, r"(\d+) MiB")
    assert 0 < held < most == 128


CHECKS = {
    "plain_loop": check_plain_loop,
    "hf_trainer": check_hf_trainer,
    "lightning_fit": check_lightning_fit,
    "accelerate_loop": check_accelerate_loop,
    "fsdp2": check_fsdp2,
    "megatron_gpt": check_ranks,
    "compiled": check_compiled,
    "serving": check_serving,
    "rl_loop": check_rl_loop,
    "lora": check_lora,
    "elastic_cache": check_elastic_cache,
}


def test_what_its_page_says_came_out(name: str, ended: Ended, folder: Path) -> None:
    CHECKS[name](ended, folder)
