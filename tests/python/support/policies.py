"""The policies that there are, those of annexes among them."""

from __future__ import annotations

import gmlake


def lending_policies() -> list[str]:
    """`stitch` and those around it, which have all of its settings."""
    (knob,) = (each for each in gmlake.knobs() if each["name"] == "optimize_for")
    return knob["policies"].split(", ")
