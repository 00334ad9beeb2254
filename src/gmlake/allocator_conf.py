"""Translates PYTORCH_ALLOC_CONF, which sets PyTorch's allocator, into settings of gmlake.

PyTorch itself complains about options it does not understand, so all others are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gmlake import _core

VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_MIB: Final = 1 << 20
_SIZES: Final = {
    "max_split_size_mb": "max_split_size",
    "max_non_split_rounding_mb": "max_non_split_rounding",
    "large_segment_size_mb": "large_segment_size",
}
_ENTRY: Final = re.compile(r"(?<!\w)(\w+)\s*:(\s*\[[^\[\]]*\]\s*|[^,\[]*)(?:,|$)", re.ASCII)
_DIVISION: Final = re.compile(r"\s*(>|[0-9]{1,9})\s*:\s*([0-9]{1,9})\s*", re.ASCII)
_INTERVALS: Final = tuple(1 << power for power in range(16))  # in MiB, as PyTorch keeps them


def read_allocator_conf(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the settings in the variable that PyTorch reads, by the names of gmlake.knobs()."""
    text = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    entries = _entries(text)
    limits = {knob["name"]: (knob["minimum"], knob["maximum"]) for knob in _core.knobs()}
    knobs = _sizes(entries) | _collection(entries) | _divisions(entries)
    kept = {}
    for name, value in knobs.items():
        low, high = limits[name.partition(".")[0]]
        if low <= value <= high:
            kept[name] = value
    return kept


def _entries(text: str) -> dict[str, str]:
    return {match[1]: match[2].strip() for match in _ENTRY.finditer(text)}


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _sizes(entries: dict[str, str]) -> dict[str, int]:
    return {
        knob: int(entries[name]) * _MIB
        for name, knob in _SIZES.items()
        if re.fullmatch("[0-9]{1,9}", entries.get(name, ""))
    }


def _collection(entries: dict[str, str]) -> dict[str, int]:
    threshold = _number(entries.get("garbage_collection_threshold"))
    if threshold is None or not 0 < threshold < 1:
        return {}
    return {"garbage_collection_percent": max(1, round(100 * threshold))}


def _divisions(entries: dict[str, str]) -> dict[str, int]:
    """Read one number, or numbers by size in MiB: each holds up to the next, ">" for the rest."""
    text = entries.get("roundup_power2_divisions", "")
    if re.fullmatch("[0-9]{1,4}", text):
        return {"roundup_power2_divisions": int(text)}
    pairs = [
        match.groups()
        for part in text.strip("[]").split(",")
        if (match := _DIVISION.fullmatch(part))
    ]
    found: dict[int, int] = {}
    previous = 0
    for where, count in pairs:
        end = _INTERVALS[-1] * 2 if where == ">" else int(where) * 2
        found |= {at: int(count) for at in _INTERVALS if previous <= at < end}
        previous = end
    return {f"roundup_power2_divisions.{at}": count for at, count in found.items()}
