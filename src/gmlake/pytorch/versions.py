"""The versions of PyTorch that gmlake knows, and how each was tested. No other place lists them.

A version that is new: add a row. `tests/python/house/test_versions.py` then names each document,
script and setting that disagrees.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Version(NamedTuple):
    """A minor version of PyTorch 2.

    release: the one that tests run with; adapters are made from 2.MINOR.0. tested: "compiled", the
    adapter alone; "interface", the tests of what touches PyTorch's private parts, on the stand-in
    GPU; "all", every test on the stand-in GPU. in_each_change: whether continuous integration
    does so.
    """

    minor: int
    release: str
    tested: str
    in_each_change: bool = False


VERSIONS: Final = (
    Version(11, "2.11.0", "all", in_each_change=True),
    Version(12, "2.12.0", "compiled"),
    Version(13, "2.13.0", "interface"),
    Version(14, "2.14.1", "interface", in_each_change=True),
    Version(15, "2.15.0", "interface"),
)

KNOWN: Final = tuple(version.minor for version in VERSIONS)
"""The minor versions of PyTorch 2 whose interface the adapter has in full."""

SEEN: Final = tuple(f"2.{each.minor}" for each in VERSIONS if each.tested != "compiled")
"""The versions that ran on the stand-in GPU: they have every private part that gmlake uses."""

RANGE: Final = f"2.{KNOWN[0]} to 2.{KNOWN[-1]}"
