"""Colours and sizes that all pictures share; each is readable on white, on black, and in grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gmlake.pictures.figures import CATEGORIES, OTHERS

CATEGORY_COLOURS: Final = dict(
    zip(
        CATEGORIES,
        ("#2a7fc1", "#d1602f", "#1f9e77", "#dd9d1a", "#c06fa6", "#868d98"),
        strict=True,
    )
)

PALETTE: Final = (
    "#2a7fc1",
    "#dd9d1a",
    "#1f9e77",
    "#d1602f",
    "#c06fa6",
    "#56b4e9",
    "#8f6fd1",
    "#a3a01c",
    "#c94f5b",
    "#5f8c8a",
)
"""Colours for anything without a category, in turn."""

FREE: Final = "#9aa1ab"
FREE_IN_POOLS: Final = "#5f8c8a"
RESERVED: Final = "#7d5bd0"
OUT_OF_MEMORY: Final = "#d8323c"
MARK: Final = "#868d98"


def category_colour(name: str) -> str:
    """Return the colour of a category; an unknown name gets that of "unknown"."""
    return CATEGORY_COLOURS.get(name, CATEGORY_COLOURS["unknown"])


def colours_of(keys: Sequence[str]) -> list[str]:
    """Return one colour per key of a legend: a category has its own, others take turns."""
    grey = {OTHERS: CATEGORY_COLOURS["unknown"]}
    return [
        (grey | CATEGORY_COLOURS).get(key, PALETTE[number % len(PALETTE)])
        for number, key in enumerate(keys)
    ]
