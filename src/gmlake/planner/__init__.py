"""Planning on recorded data: placing memory when all requests are known in advance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.planner.api import plan
    from gmlake.planner.plan_files import MadeFor, PlanFile, SavedPlan, load_plans, save_plans
    from gmlake.planner.plan_report import PlanReport, PlanResult, StepResult

__all__ = [
    "MadeFor",
    "PlanFile",
    "PlanReport",
    "PlanResult",
    "SavedPlan",
    "StepResult",
    "load_plans",
    "plan",
    "save_plans",
]

__getattr__ = lazily(
    __name__,
    {
        "gmlake.planner.api": "plan",
        "gmlake.planner.plan_files": "MadeFor PlanFile SavedPlan load_plans save_plans",
        "gmlake.planner.plan_report": "PlanReport PlanResult StepResult",
    },
)
