"""What the planner adds to gmlake."""

from __future__ import annotations

from typing import Final

from gmlake.annexes import Annex, Command

ANNEX: Final = Annex(
    names={
        "gmlake.planner": (
            "Instance PlanFile PlanReport PlanResult StepResult load_instance load_plans plan "
            "save_plans"
        ),
        "gmlake.planner._planner": "Plan Profile",
        "gmlake.planner.autoplan": "AutoPlan",
        "gmlake.planner.device": "StepReport",
        "gmlake.planner.errors": "PlanError",
    },
    commands={
        "plan": Command(
            "Place what traces or CSV instances allocate, and plan the step that a trace repeats.",
            "gmlake.planner.command",
        ),
    },
    hooks={
        "replay": "gmlake.planner.serving:REPLAYS",
        "run report": "gmlake.planner.serving:in_words",
        "trainer steps": "gmlake.planner.autoplan:steps_of_trainer",
        "view": "gmlake.planner.view:VIEW",
    },
    extension="gmlake.planner._planner",
)
