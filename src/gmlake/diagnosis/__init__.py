"""The diagnosis: ten patterns of memory inefficiency, each with the line to change.

An optional annex of gmlake. It needs no lake: anything that observes a program can make a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.diagnosis.advice import Advice as Advice
    from gmlake.diagnosis.builder import Part as Part, TraceBuilder as TraceBuilder
    from gmlake.diagnosis.detect import (
        Diagnosis as Diagnosis,
        Peak as Peak,
        find_inefficiencies as find_inefficiencies,
    )
    from gmlake.diagnosis.findings import Call as Call, Finding as Finding, Group as Group
    from gmlake.diagnosis.object_trace import ObjectTrace as ObjectTrace, Place as Place
    from gmlake.diagnosis.words import Pattern as Pattern

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
