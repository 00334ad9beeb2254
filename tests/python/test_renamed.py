"""Names of the last release: they still work, and say their new one."""

from __future__ import annotations

import pytest

import gmlake
from gmlake import snapshots


def test_spans_by_their_old_names() -> None:
    with gmlake.Lake() as lake:
        lake.allocate("20MiB")
        with pytest.warns(DeprecationWarning, match="spans"):
            assert lake.regions() == lake.spans()
        (seen,) = lake.snapshot().devices
        with pytest.warns(DeprecationWarning, match="spans"):
            assert seen.regions is seen.spans
    assert snapshots.SpanKind["HOME"] is snapshots.SpanKind.BASE


def test_a_setting_by_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="the setting economy is now optimize_for"):
        lake = gmlake.Lake(economy="memory")
    with lake, gmlake.Lake(optimize_for="memory") as other:
        assert lake.stats().keys() == other.stats().keys()
    refused = pytest.raises(ValueError, match=r"optimize_for is 'fast', but must be time")
    with pytest.warns(DeprecationWarning, match="optimize_for"), refused:
        gmlake.Lake(economy="fast")
