"""Ratios of pairs of measurements, and how sure their median is; needs no PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_DRAWS = 2000


def compared(ratios: Sequence[float]) -> dict[str, float]:
    """Return the median, and the interval that holds it at 95 % (bootstrap)."""
    chance = np.random.default_rng(0)
    drawn = np.median(chance.choice(ratios, (_DRAWS, len(ratios))), axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return {"ratio": float(np.median(ratios)), "low": float(low), "high": float(high)}


def compared_pairs(mine: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """Return compared() of the ratios of `mine` to `base`, pair by pair."""
    return compared([one / other for one, other in zip(mine, base, strict=True)])


def compared_turns(
    mine: Sequence[float], base: Sequence[float], is_mine_first: Sequence[bool]
) -> dict[str, float]:
    """Return compared_pairs() without what the order of a pair does.

    Whoever comes first pays for both, for example for the plan of a product of a new shape. So the
    median is taken of each order by itself, and the ratio is the geometric mean of the two; where
    there is one order only, its median.
    """
    ratios = np.asarray(mine, float) / np.asarray(base, float)
    is_first = np.asarray(is_mine_first, bool)
    halves = [half for half in (ratios[is_first], ratios[~is_first]) if len(half)]
    chance = np.random.default_rng(0)
    drawn = [np.median(chance.choice(half, (_DRAWS, len(half))), axis=1) for half in halves]
    low, high = np.percentile(np.exp(np.mean(np.log(drawn), axis=0)), (2.5, 97.5))
    ratio = np.exp(np.mean([np.log(np.median(half)) for half in halves]))
    return {"ratio": float(ratio), "low": float(low), "high": float(high)}
