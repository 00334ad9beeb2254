"""Recorded memory traces, and gmlake's own format for them."""

from gmlake.trace.layout import RANGE, REQUEST, SPAN, START_BLOCK, Kind, SpanKind
from gmlake.trace.trace import Trace

__all__ = [
    "RANGE",
    "REQUEST",
    "SPAN",
    "START_BLOCK",
    "Kind",
    "SpanKind",
    "Trace",
]
