"""The names, commands and hooks that the planner adds to gmlake."""

from __future__ import annotations

from typing import Final

from gmlake.annexes import Annex, Command

PLAN_FILE: Final = b"GMLPLANS"
"""The first bytes of a plan file."""

ANNEX: Final = Annex(
    names={"gmlake.planner": "AutoPlan plan"},
    commands={
        "plan": Command(
            "Place what traces allocate, and plan the step that a trace repeats.",
            "gmlake.planner.plan_command",
        ),
    },
    hooks={
        "replay": "gmlake.planner.plan_replay:REPLAYS",
        "run report": "gmlake.planner.plan_replay:in_words",
        "trainer steps": "gmlake.planner.autoplan:steps_of_trainer",
        "view": "gmlake.planner.plan_view:VIEW",
    },
)
