"""A function for each table of a document that a result makes: `table(result) -> str`, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabled import (
    filling,
    fits,
    forecast_errors,
    frontier,
    graphs,
    handing,
    others,
    peers,
    turns,
    utilization,
    varying,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES: dict[tuple[str, str], Callable[[dict[str, Any]], str]] = {
    ("fits", "fits"): fits.fits,
    ("forecast_errors", "errors"): forecast_errors.errors,
    ("gpu_filling", "servers"): filling.servers,
    ("gpu_frontier", "speeds"): frontier.speeds,
    ("gpu_graphs", "decode"): graphs.decode,
    ("gpu_handing", "turns"): handing.turns,
    ("gpu_sleeping", "ways"): peers.ways,
    ("gpu_turns", "turns"): turns.turns,
    ("gpu_varying", "programs"): varying.programs,
    ("others", "others"): others.others,
    ("others", "servers"): others.servers,
    ("utilization_varying", "reserved"): utilization.reserved,
}
"""By the name of the result and that of the table: `<!-- from gpu_turns: turns -->`."""
