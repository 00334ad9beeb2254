"""Diagnosis: ten patterns of memory inefficiency, each with the line to change."""

from __future__ import annotations

from gmlake.diagnosing.advice import Advice
from gmlake.diagnosing.builder import Part, TraceBuilder
from gmlake.diagnosing.changes import Change
from gmlake.diagnosing.detect import Diagnosis, Peak, find_inefficiencies
from gmlake.diagnosing.findings import Call, Finding, Group
from gmlake.diagnosing.trace import ObjectTrace, Place
from gmlake.diagnosing.words import Pattern

__all__ = [
    "Advice",
    "Call",
    "Change",
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
