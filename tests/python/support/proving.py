"""The independent check of diagnoses, in lab/."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gmlake.diagnosis import Diagnosis, Finding


def prove(found: Diagnosis, findings: Iterable[Finding | int] | None = None) -> None:
    """Prove that these findings, or all, can be fixed; skip the test where there is no lab/."""
    module = pytest.importorskip("gmlake.diagnosis._check")
    chosen = range(len(found.records)) if findings is None else findings
    numbers = [one if isinstance(one, int) else one.number for one in chosen]
    trace = found.trace
    module.check(
        *(trace.apis, trace.objects, trace.accesses, trace.ranges),
        *(found.records, found.lives, found.times, np.array(numbers, np.uint64)),
    )
