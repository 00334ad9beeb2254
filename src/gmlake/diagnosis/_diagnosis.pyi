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

def diagnose(
    apis: _Bytes,
    objects: _Bytes,
    accesses: _Bytes,
    ranges: _Bytes,
    *,
    patterns: int = 0,
) -> Found: ...
def peak_with(handle: object, findings: _Bytes, /) -> int: ...
def patterns() -> tuple[str, ...]: ...
