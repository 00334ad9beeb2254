"""What the papers say of their own runs, in numbers that stand in their text.

Their figures give no numbers; only what the text says of a figure is here. Parts of reserved memory
that were live at the peak, as ranges; sizes in GB.
"""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """A range of live / reserved. where: the paper, and its figure or table."""

    low: float
    high: float
    where: str


WITH_STITCHING = "GMLake (paper)"
WITH_PLANS = "STAlloc (paper)"
STOCK = "PyTorch (paper)"
GROWING = "PyTorch ES (paper)"

STRATEGIES = {
    STOCK: Said(0.70, 0.80, "GMLake, section 5.2.1: fragmentation can exceed 20 %"),
    WITH_STITCHING: Said(0.90, 0.95, "GMLake, section 5.2.1: fragmentation of 5 to 10 %"),
}
"""GMLake's figure 10, combined strategies."""

RANKS = {
    1: Said(0.90, 1.0, "GMLake, figure 4: more than 90 %"),
    16: Said(0.76, 0.76, "GMLake, figure 4"),
}
"""PyTorch with OPT-13B by number of GPUs."""

RANKS_STITCHED = Said(0.90, 0.90, "GMLake, section 5.2.2: about 90 %")

BATCHES = {
    STOCK: Said(0.0, 0.80, "GMLake, section 5.3: struggles to achieve 80 %"),
    WITH_STITCHING: Said(0.95, 1.0, "GMLake, section 5.3: more than 95 %"),
}
"""GMLake's figure 13, models of 13 and 20 billion parameters."""

DENSE = {
    STOCK: Said(0.571, 0.906, "STAlloc, figure 8"),
    GROWING: Said(0.624, 0.932, "STAlloc, figure 8"),
    WITH_STITCHING: Said(0.451, 0.881, "STAlloc, figure 8"),
    WITH_PLANS: Said(0.95, 1.0, "STAlloc, figure 8"),
}
"""GPT-2 and Llama2-7B."""

EXPERTS = {
    STOCK: Said(0.823, 0.823, "STAlloc, figure 8, mean"),
    GROWING: Said(0.931, 0.931, "STAlloc, figure 8, mean"),
    WITH_STITCHING: Said(0.797, 0.797, "STAlloc, figure 8, mean"),
    WITH_PLANS: Said(0.937, 0.978, "STAlloc, figure 8"),
}
"""Qwen1.5-MoE-A2.7B."""

GPT2 = {
    "N": Said(0.90, 0.90, "STAlloc, figure 2"),
    "V": Said(0.80, 0.80, "STAlloc, figure 2"),
    "R": Said(0.60, 0.60, "STAlloc, figure 2"),
}
"""PyTorch with GPT-2 on eight GPUs, about."""

LARGER = {
    "9b": Said(0.991, 0.991, "STAlloc, figure 9b"),
    "9c": Said(0.99, 1.0, "STAlloc, figure 9c"),
    "10": Said(0.99, 0.99, "STAlloc, figure 10, about"),
}
"""STAlloc itself, with Qwen2.5 and with growing batches."""

EXPERTS_LIVE_GB = {"N": 59.51, "R": 32.36, "V": 62.78, "VR": 33.07, "ZR": 44.65, "ZOR": 44.70}
"""STAlloc, table 3: what Qwen1.5-MoE-A2.7B allocates."""

FITS_141 = {
    "qwen2.5-14b-V": {"caching": False, "expandable": False, "plans": True},
    "qwen2.5-14b-N": {"caching": False, "expandable": True, "plans": True},
    "qwen2.5-14b-R": {"caching": True, "expandable": True, "plans": True},
    "qwen2.5-14b-V-tensor-4": {"caching": True, "expandable": True, "plans": True},
}
"""STAlloc, table 1: whether Qwen2.5-14B trains on 16 H200 of 141 GB."""
