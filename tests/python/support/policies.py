"""The policies that there are, those of annexes among them."""

from __future__ import annotations

import gmlake


def lending_policies() -> list[str]:
    """`stitch` and those around it, which have all of its settings."""
    (economy,) = (knob for knob in gmlake.knobs() if knob["name"] == "economy")
    return economy["policies"].split(", ")
