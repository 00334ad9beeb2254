"""Reading what is planned is bounded as all reading is; planning may take longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from budgets import check_budget
from gmlake.planner import MadeFor, SavedPlan, save_plans
from made_plans import made_plan
from recording import pairs

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {
    "view run.gmtrace -o page.html --plan": "gmlake.commands.view.report_of",
    "view plans -o page.html": "gmlake.planner.plan_files.decode_plans",
    "plan run.gmtrace": "gmlake.snapshots.opening.decode",
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs().save("run.gmtrace")
    save_plans("plans", [SavedPlan(0, "train", made_plan())], MadeFor())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["time", "memory"])
def test_every_command_has_a_budget(
    command: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    check_budget(command, COMMANDS[command], what, monkeypatch, capsys)
