# The C core: lakes, blocks, replays. Users reach it through the package gmlake.

from types import TracebackType
from typing import Any, TypeAlias, TypedDict, final

from numpy.typing import NDArray
from typing_extensions import Buffer, Self

_Bytes: TypeAlias = Buffer | NDArray[Any]  # arrays declare the buffer protocol from 3.12 on

version: str
REQUEST_BYTES: int

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

class Stats(TypedDict):
    live_blocks: int
    peak_live_blocks: int
    requested_bytes: int
    peak_requested_bytes: int
    live_bytes: int
    peak_live_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    allocations: int
    frees: int
    views: int
    view_bytes: int
    largest_free_bytes: int
    driver_time_ns: int
    states: dict[str, int]
    driver_calls: dict[str, int]

class Region(TypedDict):
    address: int
    size: int
    used: int
    stream: int
    is_small: bool
    is_view: bool
    ranges: list[tuple[int, int, int, bool]]

class ReplayTotals(TypedDict):
    events: int
    allocations: int
    refused: int
    peak_live_bytes: int
    peak_reserved_bytes: int
    seconds_ns: int

def device_describe(driver: str, device: int = 0) -> DeviceInfo: ...
def knobs() -> list[KnobInfo]: ...
def policies() -> tuple[str, ...]: ...

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
    ) -> Self: ...
    @property
    def closed(self) -> bool: ...
    def allocate(self, size: int, stream: int = 0) -> Block: ...
    def free(self, block: Block | int, /) -> None: ...
    def trim(self) -> int: ...
    def check(self) -> None: ...
    def reset_peaks(self) -> None: ...
    def stats(self) -> Stats: ...
    def torch_stats(self) -> dict[str, int]: ...
    def regions(self) -> list[Region]: ...
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
