"""Programs that run out of memory for twelve reasons: what their files answer at first sight.

Each was recorded by PyTorch. The page says it before anything else, `gmlake replay` in six lines.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING

import pytest
from tests.standin.running import run_program

import gmlake
from gmlake.commands import main
from gmlake.pictures.figures import Moments

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS = {
    "fragmented": (
        "600 MiB, asked for at scenarios.py:N in tensor() <- scenarios.py:N in fragmented(): 720 ",
        "720 MiB are free, in 6 pieces that serve at most 120 MiB, and",
        "would have been served in the same 2.00 GiB by: expandable (248 MiB to spare), stitch (",
    ),
    "at_a_peak": (
        "what is free adds up to 223 MiB, 161 MiB too little, so this is not fragmentation.",
        "Most is held by scenarios.py:N in at_a_peak(): 1.16 GiB in 5 blocks.",
        "refused in the same 2.00 GiB by: caching, expandable, stitch",
    ),
    "by_another": (
        "233 MiB of 548 MiB are live: what is free adds up to 315 MiB, 85.0 MiB too little",
        "PyTorch holds 234 MiB:",
        "refused in the same 548 MiB by: caching, expandable, stitch",
    ),
    "by_a_leak": (
        "Refused: 100 MiB, asked for at scenarios.py:N in by_a_leak(): ",
        "in by_a_leak(): 1.86 GiB in 19 blocks, and it grew all along.",
        "in by_a_leak(): 1.86 GiB in 19 blocks, and it grew all along.",
    ),
    "in_evaluation": (
        "Refused: 64.0 MiB, asked for at scenarios.py:N in in_evaluation(): ",
        "in in_evaluation(): 1.25 GiB in 20 blocks, and it grew all along.",
        "refused in the same 2.00 GiB by: caching, expandable, stitch",
    ),
    "by_a_limit": (
        "1.58 GiB are free on the device, so a limit of the program's refused it.",
        "GPU 0 has 1.58 GiB free.",
        "1.58 GiB are free on the device, so a limit of the program's refused it",
    ),
    "of_another_stream": (
        "882 MiB are free of other streams, where they cannot serve it now.",
        "882 MiB free of other streams",
        "expandable (184 MiB to spare), stitch (192 MiB to spare)",
    ),
    "by_optimizer_state": (
        "what is free adds up to 30.5 MiB, 33.5 MiB too little, so this is not fragmentation.",
        "Most is held by scenarios.py:N in by_optimizer_state(): 832 MiB in 25 blocks",
        "Most is held by scenarios.py:N in by_optimizer_state(): 832 MiB in 25 blocks",
    ),
    "by_accumulated_losses": (
        "what is free adds up to 15.0 MiB, 49.0 MiB too little, so this is not fragmentation.",
        "in by_accumulated_losses(): 1.94 GiB in 32 blocks, and it grew all along.",
        "in by_accumulated_losses(): 1.94 GiB in 32 blocks, and it grew all along.",
    ),
    "by_a_pool": (
        "in by_a_pool(): 1.17 GiB are free in MemPool (0, N), which serve nothing else.",
        "GPU 0 has 204 MiB free.",
        "1.17 GiB are free in MemPool (0, N), which serve nothing else.",
    ),
    "of_slivers": (
        "230 MiB, asked for at scenarios.py:N in tensor() <- scenarios.py:N in of_slivers(): ",
        "901 MiB are free, in 452 pieces that serve at most 2.00 MiB, and",
        "would have been served in the same 2.00 GiB by: stitch (214 MiB to spare)",
    ),
    "below_gmlake": (
        "in tensor() <- scenarios.py:N in below_gmlake(): 1.92 GiB of 2.00 GiB are live",
        "in tensor() <- scenarios.py:N in below_gmlake(): 1.40 GiB in 11 blocks",
        "refused in the same 2.00 GiB by: caching, expandable, stitch",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scenarios")
    settings = ("--devices", "1", "--capacity", "2GiB")
    outcome = run_program("scenarios", str(made), settings=settings)
    assert outcome.code == 0, outcome.errors
    assert outcome.results.keys() == ANSWERS.keys()
    return made


def without_numbers(text: str) -> str:
    """Leave out numbers of lines and of pools."""
    return re.sub(r"(scenarios\.py:|MemPool \(0, )\d+", r"\1N", " ".join(text.split()))


@pytest.mark.parametrize("name", ANSWERS)
def test_the_page_begins_with_the_answer(name: str, folder: Path) -> None:
    report = gmlake.load(folder / f"{name}.pickle").report()
    moments = report.figures[0]
    assert isinstance(moments, Moments)
    said = without_numbers(" ".join(moments.moments[moments.shown].says))
    for part in ANSWERS[name][:2]:
        assert part in said


@pytest.mark.parametrize("name", ANSWERS)
def test_replay_begins_with_the_answer(name: str, folder: Path) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(
            ["replay", str(folder / f"{name}.pickle"), "--policy", "caching,expandable,stitch"]
        )
    assert code == 0
    first = without_numbers(" ".join(out.getvalue().splitlines()[:9]))
    assert first.startswith("refused at event ")
    assert ANSWERS[name][2] in first
