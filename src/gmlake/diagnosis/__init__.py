"""The diagnosis: ten patterns of memory inefficiency, each with the line to change.

An optional annex of gmlake. It needs no lake: anything that observes a program can make a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.diagnosis.advice import Advice
    from gmlake.diagnosis.builder import Part, TraceBuilder
    from gmlake.diagnosis.detect import Diagnosis, Peak, find_inefficiencies
    from gmlake.diagnosis.findings import Call, Finding, Group
    from gmlake.diagnosis.object_trace import ObjectTrace, Place
    from gmlake.diagnosis.words import Pattern

__all__ = [
    "Advice",
    "Call",
    "Diagnosis",
    "Finding",
    "Group",
    "ObjectTrace",
    "Part",
    "Pattern",
    "Peak",
    "Place",
    "TraceBuilder",
    "find_inefficiencies",
]

__getattr__ = lazily(
    __name__,
    {
        "gmlake.diagnosis.advice": "Advice",
        "gmlake.diagnosis.builder": "Part TraceBuilder",
        "gmlake.diagnosis.detect": "Diagnosis Peak find_inefficiencies",
        "gmlake.diagnosis.findings": "Call Finding Group",
        "gmlake.diagnosis.object_trace": "ObjectTrace Place",
        "gmlake.diagnosis.words": "Pattern",
    },
)
