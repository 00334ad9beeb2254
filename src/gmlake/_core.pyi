# The C core: lakes, blocks, replays, plans. Users reach it through the package gmlake.

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, final

from numpy.typing import NDArray
from typing_extensions import Buffer, NotRequired, Self

_Bytes: TypeAlias = Buffer | NDArray[Any]  # arrays declare the buffer protocol from 3.12 on
_LakeT = TypeVar("_LakeT", bound=Lake)
_Server: TypeAlias = Literal["policy", "caching"]

__version__: str
REQUEST_BYTES: int
HISTORY_EVENT_BYTES: int

class DeviceInfo(TypedDict):
    name: str
    granularity_bytes: int
    total_bytes: int
    free_bytes: int
    has_virtual_memory: bool

class KnobInfo(TypedDict):
    name: str
    help: str
    policies: str
    default: int
    minimum: int
    maximum: int
    words: list[str]

class Stats(TypedDict):
    live_blocks: int
    peak_live_blocks: int
    requested_bytes: int
    peak_requested_bytes: int
    live_bytes: int
    peak_live_bytes: int
    highest_live_bytes: int
    highest_reserved_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    allocations: int
    frees: int
    views: int
    view_bytes: int
    largest_free_bytes: int
    cross_stream_waits: int
    borrowed_bytes: int
    deferred_free_bytes: int
    driver_time_ns: int
    states: dict[str, int]
    driver_calls: dict[str, int]

class StreamPair(TypedDict):
    owner: int
    borrower: int
    borrowed_bytes: int
    borrows: int
    waits: int
    refused_waits: int
    deferred_free_bytes: int

class Region(TypedDict):
    address: int
    size: int
    used: int
    stream: int
    is_small: bool
    is_view: bool
    kind: Literal["segment", "home", "view", "planned pool"]
    ranges: list[tuple[int, int, int, bool]]
    pieces: list[tuple[int, int, int]]

class ReplayTotals(TypedDict):
    events: int
    allocations: int
    refused: int
    first_refused: NotRequired[int]
    peak_live_bytes: int
    peak_reserved_bytes: int
    seconds_ns: int

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

class DiagnosisFound(TypedDict):
    handle: object
    findings: bytes
    lives: bytes
    times: bytes
    peaks: list[tuple[int, int]]
    fixed_peak_bytes: int
    time_ns: int

class DiagnosisDefaults(TypedDict):
    peak_count: int
    early_apis: int
    late_apis: int
    idle_apis: int
    reuse_percent: float
    accessed_percent: float
    fragmented_percent: float
    frequency_percent: float

def set_site(site: int, /) -> None: ...
def site() -> int: ...
def device_describe(driver: str, device: int = 0) -> DeviceInfo: ...
def knobs() -> list[KnobInfo]: ...
def policies() -> tuple[str, ...]: ...
def policy_help() -> tuple[str, ...]: ...
def read_plain_pickle(data: _Bytes, parts: int, /) -> object: ...
def read_pickled_events(
    data: _Bytes, parts: int, /
) -> tuple[Any, list[tuple[int, bytearray, list[Any]]]] | None: ...
def solve(
    lifetimes: _Bytes,
    offsets: _Bytes,
    *,
    period: int = 0,
    alignment: int = 512,
    orderings: _Bytes | None = None,
    budget_ms: int = 0,
    capacity: int = 0,
) -> Solution: ...
def check_placement(
    lifetimes: _Bytes,
    offsets: _Bytes,
    peak_bytes: int,
    *,
    period: int = 0,
    alignment: int = 512,
    orderings: _Bytes | None = None,
) -> None: ...
def diagnose(
    apis: _Bytes,
    objects: _Bytes,
    accesses: _Bytes,
    ranges: _Bytes,
    *,
    patterns: int = 0,
    peak_count: int = 2,
    early_apis: int = 1,
    late_apis: int = 1,
    idle_apis: int = 2,
    reuse_percent: float = 10.0,
    accessed_percent: float = 80.0,
    fragmented_percent: float = 80.0,
    frequency_percent: float = 20.0,
) -> DiagnosisFound: ...
def diagnosis_peak_with(handle: object, findings: _Bytes, /) -> int: ...
def diagnosis_check(handle: object, findings: _Bytes, /) -> None: ...
def diagnosis_patterns() -> tuple[str, ...]: ...
def diagnosis_defaults() -> DiagnosisDefaults: ...
def torch_configure(
    driver: str,
    policy: str,
    capacity: int = 0,
    settings: tuple[tuple[str, int], ...] = (),
    handle_type: int = 0,
    check_order: bool = False,
    skip_calls: Iterable[str] = (),
) -> None: ...
def torch_serve_with(server: _Server, /) -> None: ...
def torch_hooks() -> dict[str, int]: ...
def torch_find_exceptions() -> str: ...
def torch_keep_history(max_events: int, /) -> None: ...
def torch_note_refusals(text: str, /) -> None: ...
def torch_distrust_stream(device: int, stream: int, /) -> None: ...
def torch_forget_stream(device: int, stream: int, /) -> None: ...
def torch_fallback(device: int, /) -> str: ...
def torch_lake(kind: type[_LakeT], device: int, /) -> _LakeT | None: ...
def torch_devices() -> tuple[int, ...]: ...
def torch_enter_region(region: int, /) -> int: ...
def torch_region_lakes() -> list[tuple[int, int, int]]: ...
def torch_foreign_frees() -> int: ...
def friend_lake(kind: type[_LakeT], device: int, /) -> _LakeT: ...
def friend_functions() -> dict[str, int]: ...
def friend_wait_device(lake: Lake, /) -> bool: ...
def friend_wait_stream(lake: Lake, stream: int, /) -> bool: ...

class Lake:
    def __new__(
        cls,
        driver: str = "sim",
        policy: str = "stitch",
        capacity: int = 0,
        device: int = 0,
        settings: tuple[tuple[str, int], ...] = (),
        fail_call: int = 0,
        fail_per_million: int = 0,
        fail_seed: int = 0,
        check_order: bool = False,
        skip_calls: Iterable[str] = (),
        can_sleep: bool = False,
    ) -> Self: ...
    @property
    def arena(self) -> tuple[int, int] | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def is_asleep(self) -> bool: ...
    def allocate(self, size: int, stream: int = 0) -> Block: ...
    def free(self, block: Block | int, /) -> None: ...
    def trim(self) -> int: ...
    def check(self) -> None: ...
    def reset_peaks(self) -> None: ...
    def stats(self) -> Stats: ...
    def torch_stats(self) -> dict[str, int]: ...
    def regions(self) -> list[Region]: ...
    def record_stream(self, block: Block | int, stream: int) -> None: ...
    def forget_stream(self, stream: int, /) -> None: ...
    def distrust_stream(self, stream: int, /) -> None: ...
    def order_streams(self, later: int, earlier: int) -> None: ...
    def stream_pairs(self) -> list[StreamPair]: ...
    def serve_with(self, server: _Server, /) -> None: ...
    def set_limit(self, size: int, /) -> None: ...
    def begin_pool(self, first: int, second: int, /) -> None: ...
    def end_pool(self, first: int, second: int, /) -> None: ...
    def release_pool(self, first: int, second: int, /) -> None: ...
    def keep_history(self, max_events: int, /) -> None: ...
    def note_mark(self, number: int, /) -> None: ...
    def history(self) -> tuple[bytes, int]: ...
    def history_sites(self) -> tuple[bytes, bytes, int]: ...
    def publish(self, path: str | os.PathLike[str] | None, /) -> None: ...
    def sleep(self, backup: str | None = None, folder: str | None = None) -> dict[str, int]: ...
    def wake(self) -> dict[str, int]: ...
    def saved(self, address: int, size: int, /) -> int | None: ...
    def forget_saved(self) -> None: ...
    def watch_steps(self) -> None: ...
    def begin_step(self, kind: int, /) -> None: ...
    def end_step(self) -> StepReport: ...
    def profile(self, kind: int, /) -> Profile: ...
    def add_plan(self, kind: int, plan: Plan, /) -> None: ...
    def drop_plans(self, kind: int, /) -> None: ...
    def mark(self) -> None: ...
    def plan_stats(self) -> PlanStats: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

@final
class Block(Buffer):
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def requested_size(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def is_live(self) -> bool: ...
    @property
    def lake(self) -> Lake: ...
    def __index__(self) -> int: ...
    def __int__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Replay:
    def __new__(cls, lake: Lake, id_count: int) -> Self: ...
    def run(self, requests: _Bytes, addresses: _Bytes | None = None) -> ReplayTotals: ...
    def restore(self, segments: _Bytes, blocks: _Bytes) -> None: ...
    def follow_segments(self) -> None: ...
    def free_all(self) -> None: ...

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
    @property
    def event_count(self) -> int: ...
    @property
    def request_count(self) -> int: ...
    @property
    def serial(self) -> int: ...
    @property
    def previous_event_count(self) -> int: ...
    def requests(self) -> bytes: ...
    def previous_requests(self) -> bytes: ...

@final
class Plan:
    @classmethod
    def build(cls, profile: Profile, budget_ms: int = 0) -> Plan: ...
    @classmethod
    def decode(cls, data: _Bytes, /) -> Plan: ...
    def encode(self) -> bytes: ...
    def describe(self) -> PlanInfo: ...
    def requests(self) -> bytes: ...
