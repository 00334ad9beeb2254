"""The traces of examples/: there, small, and what their README says of them."""

from __future__ import annotations

import numpy as np

import gmlake
from gmlake.trace import Kind
from places import ROOT, SHIPPED

MIB = 1 << 20


def test_the_shipped_traces_are_there_and_small() -> None:
    assert len(SHIPPED) >= 2
    assert sum(path.stat().st_size for path in SHIPPED) < 2 * MIB
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in SHIPPED if path.name not in listed] == []


def test_shipped_traces_hold_what_the_readme_says() -> None:
    traces = [gmlake.load(path).devices[0].trace for path in SHIPPED]
    assert sum(trace.peak_live_bytes > 5 << 30 for trace in traces) >= 2
    for trace in traces:
        size, kind = trace.requests["size_bytes"].astype(np.int64), trace.requests["kind"]
        signed = np.where(kind == Kind.ALLOC, size, np.where(kind == Kind.FREE, -size, 0))
        assert (np.cumsum(signed) >= 0).all()
        assert np.count_nonzero(kind == Kind.MARK) >= 3
