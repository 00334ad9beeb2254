"""A function for each table of a document that a result makes: `table(result) -> str`, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabled import (
    forecast_errors,
    frontier,
    handing,
    peers,
    turns,
    utilization,
    varying,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES: dict[tuple[str, str], Callable[[dict[str, Any]], str]] = {
    ("forecast_errors", "errors"): forecast_errors.errors,
    ("gpu_frontier", "speeds"): frontier.speeds,
    ("gpu_handing", "turns"): handing.turns,
    ("gpu_sleeping", "ways"): peers.ways,
    ("gpu_turns", "turns"): turns.turns,
    ("gpu_varying", "programs"): varying.programs,
    ("utilization_varying", "reserved"): utilization.reserved,
}
"""By the name of the result and that of the table: `<!-- from gpu_turns: turns -->`."""
