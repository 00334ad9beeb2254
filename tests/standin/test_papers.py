"""The papers' trainings, tiny: what they allocate is what they say they are."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.standin.places import ROOT

import gmlake
from gmlake.trace import Kind

BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

from papers.jobs import JOBS, Job  # noqa: E402
from papers.measure import CAPACITIES, largest  # noqa: E402

"""More than tokens, losses and the counters of an optimizer take, less than what is compared."""


@dataclass
class OneBlock:
    """Recordings of a job that takes 1 GiB for each sequence and 3 GiB beside."""

    job: Job
    traces: dict[int, gmlake.Trace]

    def __getitem__(self, batch: int) -> gmlake.Trace:
        requests = np.zeros(1, gmlake.load_trace(SHIPPED).requests.dtype)
        requests["kind"] = Kind.ALLOC
        requests["size_bytes"] = (3 + batch) << 30
        self.traces[batch] = gmlake.Trace(requests=requests)
        return self.traces[batch]


SHIPPED = ROOT / "examples" / "traces" / "gpt2-xl.gmtrace"


@pytest.mark.parametrize("grain", [1, 4])
@pytest.mark.parametrize("begin", [4, 60, 200])
def test_the_largest_batch_is_found(grain: int, begin: int) -> None:
    batches: Any = OneBlock(replace(JOBS["llama2-7b-R"], batch=begin, grain=grain), {})
    found = largest(batches, CAPACITIES["80GiB"])
    assert all(bracket.is_exact(grain) for bracket in found.values())
    assert {bracket.fits for bracket in found.values()} == {77 // grain * grain}
    assert len(batches.traces) <= 6
