"""Planning on recorded data: what places memory when all of it is known beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.planning.api import plan
    from gmlake.planning.files import MadeFor, PlanFile, SavedPlan, load_plans, save_plans
    from gmlake.planning.instances import Instance, load_instance
    from gmlake.planning.report import PlanReport, PlanResult, StepResult

__all__ = [
    "Instance",
    "MadeFor",
    "PlanFile",
    "PlanReport",
    "PlanResult",
    "SavedPlan",
    "StepResult",
    "load_instance",
    "load_plans",
    "plan",
    "save_plans",
]

__getattr__ = lazily(
    __name__,
    {
        "gmlake.planning.api": "plan",
        "gmlake.planning.files": "MadeFor PlanFile SavedPlan load_plans save_plans",
        "gmlake.planning.instances": "Instance load_instance",
        "gmlake.planning.report": "PlanReport PlanResult StepResult",
    },
)
