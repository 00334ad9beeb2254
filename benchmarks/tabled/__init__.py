"""A function for each table of a document that a result makes: `table(result) -> str`, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabled import (
    driver_costs,
    features,
    filling,
    fits,
    forecast_errors,
    frontier,
    graphs,
    handing,
    links,
    long,
    others,
    overhead,
    papers,
    peers,
    speed,
    streams,
    training,
    turns,
    utilization,
    varying,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES: dict[tuple[str, str], Callable[[dict[str, Any]], str]] = {
    ("driver_costs", "handles"): driver_costs.handles,
    ("driver_costs", "ranges"): driver_costs.ranges,
    ("fits", "fits"): fits.fits,
    ("forecast_errors", "errors"): forecast_errors.errors,
    ("gpu_features", "compared"): features.compared_features,
    ("gpu_features", "features"): features.features,
    ("gpu_filling", "servers"): filling.servers,
    ("gpu_four_sharded", "programs"): varying.programs,
    ("gpu_frontier", "ends"): frontier.ends,
    ("gpu_frontier", "speeds"): frontier.speeds,
    ("gpu_frontier_short", "speeds"): frontier.speeds,
    ("gpu_graphs", "decode"): graphs.decode,
    ("gpu_graphs", "replays"): graphs.replays,
    ("gpu_handing", "turns"): handing.turns,
    ("gpu_handing_costs", "costs"): handing.costs,
    ("gpu_links", "ways"): links.ways,
    ("gpu_long", "runs"): long.runs,
    ("gpu_others", "computed"): others.computed,
    ("gpu_peers", "inference"): peers.inference,
    ("gpu_planned", "planned"): training.planned,
    ("gpu_sleeping", "ways"): peers.ways,
    ("gpu_streams", "compared"): streams.compared_streams,
    ("gpu_streams", "streams"): streams.streams,
    ("gpu_training", "training"): training.training,
    ("gpu_turns", "turns"): turns.turns,
    ("gpu_varying", "chosen"): varying.chosen,
    ("gpu_varying", "programs"): varying.programs,
    ("gpu_varying", "spreads"): varying.spreads,
    ("others", "others"): others.others,
    ("others", "servers"): others.servers,
    ("others", "vllm"): others.vllm,
    ("overhead", "pairs"): overhead.overhead,
    ("overhead_h100", "pairs"): overhead.overhead_spreads,
    ("speed", "curves"): speed.curves,
    ("speed", "pairs"): speed.pairs,
    ("utilization", "reserved"): utilization.reserved,
    ("utilization_h200", "reserved"): utilization.reserved,
    ("utilization_varying", "late"): utilization.late,
    ("utilization_varying", "reserved"): utilization.reserved,
    **papers.PAPERS,
}
"""By the name of the result and that of the table: `<!-- from gpu_turns: turns -->`."""
