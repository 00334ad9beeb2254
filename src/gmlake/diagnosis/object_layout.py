"""The records of a trace of objects as numpy types; each is a struct of gmlake_diagnose.h."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

API: Final = np.dtype(
    [
        ("stream", "<u8"),
        ("first_access", "<u8"),
        ("access_count", "<u4"),
        ("object", "<u4"),
        ("kind", "<u4"),
        ("reserved", "<u4"),
    ]
)
"""`gml_api`, 32 bytes: one operation that a program requested, in order of invocation."""

OBJECT: Final = np.dtype(
    [("size_bytes", "<u8"), ("tag", "<u8"), ("element_bytes", "<u4"), ("flags", "<u4")]
)
"""`gml_object`, 24 bytes: the result of one allocation. `tag` is the number of its place."""

ACCESS: Final = np.dtype(
    [
        ("first_range", "<u8"),
        ("range_count", "<u4"),
        ("object", "<u4"),
        ("flags", "<u4"),
        ("reserved", "<u4"),
    ]
)
"""`gml_access`, 24 bytes: one API's access to one object; no ranges: all of it."""

RANGE: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("size_bytes", "<u8"),
        ("stride_bytes", "<u8"),
        ("repeat", "<u8"),
        ("weight", "<u8"),
    ]
)
"""`gml_access_range`, 40 bytes: `repeat` runs, each `stride_bytes` after the one before."""

FINDING: Final = np.dtype(
    [
        ("pattern", "<u4"),
        ("object", "<u4"),
        ("other", "<u4"),
        ("guidance", "<u4"),
        ("from_api", "<u8"),
        ("to_api", "<u8"),
        ("distance", "<u8"),
        ("bytes", "<u8"),
        ("saving_bytes", "<u8"),
        ("peak_bytes", "<u8"),
        ("percent", "<f8"),
        ("fragmented_percent", "<f8"),
        ("pieces", "<u8"),
    ]
)
"""`gml_finding`, 88 bytes."""

LIFE: Final = np.dtype(
    [
        ("alloc", "<u8"),
        ("free", "<u8"),
        ("first", "<u8"),
        ("last", "<u8"),
        ("earliest", "<u8"),
        ("latest", "<u8"),
        ("access_count", "<u4"),
        ("peaks", "<u4"),
    ]
)
"""`gml_object_life`, 56 bytes: numbers of APIs, or NO_API."""

NO_API: Final = 2**64 - 1
NO_OBJECT: Final = 2**32 - 1
LARGEST_SIZE: Final = 1 << 48
"""Bytes of the largest object."""

BEFORE: Final = 1
"""Flag of an object that exists before the first API."""

KEPT: Final = 2
"""Flag of an object that is meant to outlive the trace."""

READS: Final = 1
WRITES: Final = 2
TOUCHES: Final = 4


class ApiKind(IntEnum):
    """`gml_api_kind`."""

    ALLOC = 0
    FREE = 1
    COPY = 2
    SET = 3
    KERNEL = 4
