# The planner in C, and the steps of lakes. Users reach it through the package gmlake.

from typing import Any, TypeAlias, TypedDict, final

from numpy.typing import NDArray
from typing_extensions import Buffer, Self

from gmlake._core import Lake

_Bytes: TypeAlias = Buffer | NDArray[Any]  # arrays declare the buffer protocol from 3.12 on

class Solution(TypedDict):
    peak_bytes: int
    lower_bound_bytes: int
    method: str
    time_ns: int
    is_proven: bool

class PlanInfo(TypedDict):
    requests: int
    placed: int
    steps: int
    lanes: int
    peak_bytes: int
    lower_bound_bytes: int
    method: str
    time_ns: int
    fingerprint: int

class StepReport(TypedDict):
    kind: int
    serial: int
    requests: int
    served: int
    left: int
    driver_calls: int
    reserved_bytes: int
    fingerprint: int
    why: str

class PlanStats(TypedDict):
    steps: int
    planned_steps: int
    requests: int
    served: int
    left: int
    plans_made: int
    why: str

def solve(
    lifetimes: _Bytes,
    offsets: _Bytes,
    *,
    alignment: int = 512,
    orderings: _Bytes | None = None,
    budget_ms: int = 0,
    capacity: int = 0,
) -> Solution: ...
def watch_steps(lake: Lake, /) -> None: ...
def begin_step(lake: Lake, kind: int, /) -> None: ...
def end_step(lake: Lake, /) -> StepReport: ...
def profile(lake: Lake, kind: int, /) -> Profile: ...
def add_plan(lake: Lake, kind: int, plan: Plan, /) -> None: ...
def drop_plans(lake: Lake, kind: int, /) -> None: ...
def plan_stats(lake: Lake, /) -> PlanStats: ...

@final
class Profile:
    def __new__(
        cls,
        requests: _Bytes,
        event_count: int,
        previous: _Bytes | None = None,
        previous_event_count: int = 0,
        serial: int = 1,
        previous_serial: int = 0,
    ) -> Self: ...

@final
class Plan:
    @classmethod
    def build(cls, profile: Profile, budget_ms: int = 0) -> Plan: ...
    @classmethod
    def decode(cls, data: _Bytes, /) -> Plan: ...
    def encode(self) -> bytes: ...
    def describe(self) -> PlanInfo: ...
    def requests(self) -> bytes: ...
