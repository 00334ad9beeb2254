# The C core of the diagnosis. Users reach it through the package gmlake.

from typing import Any, TypeAlias, TypedDict

from numpy.typing import NDArray
from typing_extensions import Buffer

_Bytes: TypeAlias = Buffer | NDArray[Any]  # arrays declare the buffer protocol from 3.12 on

class Found(TypedDict):
    handle: object
    findings: bytes
    lives: bytes
    times: bytes
    peaks: list[tuple[int, int]]
    fixed_peak_bytes: int
    time_ns: int

class Defaults(TypedDict):
    peak_count: int
    early_apis: int
    late_apis: int
    idle_apis: int
    reuse_percent: float
    accessed_percent: float
    fragmented_percent: float
    frequency_percent: float

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
) -> Found: ...
def peak_with(handle: object, findings: _Bytes, /) -> int: ...
def patterns() -> tuple[str, ...]: ...
def defaults() -> Defaults: ...
