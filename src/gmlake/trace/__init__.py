"""Recorded memory traces, and gmlake's own format for them."""

from gmlake.trace.layout import FINAL_BLOCK, REQUEST, SEGMENT, START_BLOCK, Kind
from gmlake.trace.trace import Trace

__all__ = [
    "FINAL_BLOCK",
    "REQUEST",
    "SEGMENT",
    "START_BLOCK",
    "Kind",
    "Trace",
]
