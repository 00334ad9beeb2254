"""Planning on recorded data: placing memory when all requests are known in advance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.planner._planner import Plan as Plan, Profile as Profile
    from gmlake.planner.api import plan as plan
    from gmlake.planner.autoplan import AutoPlan as AutoPlan
    from gmlake.planner.device_planner import StepReport as StepReport
    from gmlake.planner.plan_errors import PlanError as PlanError
    from gmlake.planner.plan_files import (
        MadeFor as MadeFor,
        PlanFile as PlanFile,
        SavedPlan as SavedPlan,
        load_plans as load_plans,
        save_plans as save_plans,
    )
    from gmlake.planner.plan_report import (
        PlanReport as PlanReport,
        PlanResult as PlanResult,
        StepResult as StepResult,
    )

__getattr__ = lazily(
    __name__,
    {
        "gmlake.planner._planner": "Plan Profile",
        "gmlake.planner.api": "plan",
        "gmlake.planner.autoplan": "AutoPlan",
        "gmlake.planner.device_planner": "StepReport",
        "gmlake.planner.plan_errors": "PlanError",
        "gmlake.planner.plan_files": "MadeFor PlanFile SavedPlan load_plans save_plans",
        "gmlake.planner.plan_report": "PlanReport PlanResult StepResult",
    },
)
