"""Recorded memory traces: PyTorch snapshots and gmlake's own format, read without trust."""

from gmlake.trace.files import load_trace, load_traces
from gmlake.trace.layout import FINAL_BLOCK, REQUEST, SEGMENT, START_BLOCK, Kind
from gmlake.trace.trace import Trace

__all__ = [
    "FINAL_BLOCK",
    "REQUEST",
    "SEGMENT",
    "START_BLOCK",
    "Kind",
    "Trace",
    "load_trace",
    "load_traces",
]
