"""How sure an answer is: what it depends on that nobody knows, and the errors measured so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from gmlake.units import format_size

MEASURED: Final = 25  # programs in benchmarks/results/forecast_errors.json

ERRORS: Final = {
    "caching": (0.1, 1.7, 2.9, 3.1, 4.8, 15.9, 17.7, 42.7),
    "expandable": (0.1, 0.1, 3.5),
    "stitch": (0.1, 1.1, 2.0, 5.5),
}
"""By allocator: of those that had more in use than was foreseen, by how much, in 1/1000."""

_LEAK_BYTES: Final = 1 << 20  # growth of what is live, from step to step, that counts
_MOST_SPREAD: Final = 0.01  # of what steps ask for that count as alike
_PLENTY: Final = 2.0  # times what steps that differ needed is taken to be enough for others


def share_that_fits(policy: str, needed_bytes: int, memory_bytes: int) -> float:
    """Return how many of the measured programs would fit, as the rule of succession has it."""
    room = 1000 * (memory_bytes / needed_bytes - 1)
    fitting = MEASURED - sum(error > room for error in ERRORS[policy])
    return (fitting + 1) / (MEASURED + 2)


def open_questions(known: Mapping[str, Any], room: float) -> Iterator[str]:
    """Yield what the memory of a run depends on that is not known, a line each.

    room: how many times what the run needs the device has.
    """
    yield from _of_values(known)
    if known["why"] == "time was up":
        yield "its time was up before its steps repeated: --timeout SECONDS gives it more"
    if known["why"] == "steps differ":
        yield from _of_steps(known["asked_bytes"], room)
    live = known["live_bytes"][-3:]
    if len(live) == 3 and all(b - a > _LEAK_BYTES for a, b in pairwise(live)):  # noqa: PLR2004
        growth = format_size(live[-1] - live[-2])
        yield f"what is live after a step grows by {growth} in each: another one needs more"


def _of_values(known: Mapping[str, Any]) -> Iterator[str]:
    said = {
        "rows": "memory depends on values that are not known at {}: {function}",
        "truth": "{} asks for a truth value that is not known, taken as {answers}",
    }
    if known["why"] == "the program ended":
        said["number"] = "the program ended after it compared a number that is not known at {}"
    found = [each for each in known["answers"] if each["is_open"] and each["what"] in said]
    for each in found[:3]:
        yield said[each["what"]].format(f"{each['file']}:{each['line']}", **each)


def _of_steps(sizes: list[int], room: float) -> Iterator[str]:
    spread = (max(sizes) - min(sizes)) / max(sizes) if sizes else 1.0
    count = len(sizes)
    if count > 1 and all(a < b for a, b in pairwise(sizes)):
        yield f"each of the last {count} steps asked for more than the one before"
    elif spread > _MOST_SPREAD and room < _PLENTY:
        yield (
            f"no two of the last {count} steps were alike, what they asked for differs by "
            f"{spread:.0%}: another may need more; --steps N runs more of them, --to-end all"
        )
