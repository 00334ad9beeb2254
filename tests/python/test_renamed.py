"""Names of the last release: they still work, and say their new one."""

from __future__ import annotations

import importlib
import sys

import pytest

import gmlake
from gmlake import snapshots


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        (gmlake, "Region", "Session"),
        (snapshots, "RegionKind", "SpanKind"),
        (snapshots, "REGION", "SPAN"),
    ],
)
def test_an_old_name_is_the_new_one(package: object, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"\.{old} is now .*\.{new}; "):
        found = getattr(package, old)
    assert found is getattr(package, new)
    assert old not in dir(package)


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


def test_interop_by_its_old_name() -> None:
    for name in [name for name in sys.modules if name.startswith("gmlake.friends")]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match=r"gmlake\.friends is now gmlake\.interop"):
        old = importlib.import_module("gmlake.friends")
    new = importlib.import_module("gmlake.interop")
    assert [getattr(old, name) for name in new.__all__] == [
        getattr(new, name) for name in new.__all__
    ]
    assert importlib.util.find_spec("gmlake.friends.on_numba") is not None
