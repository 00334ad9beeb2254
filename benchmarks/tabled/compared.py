"""Programs under three allocators, a row each: what was reserved, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tabled.markdown import GIB, marked, number, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ALLOCATORS = ("expandable", "default", "gmlake")
NAMES = {
    "expandable": "expandable segments",
    "default": "PyTorch's default",
    "gmlake": "gmlake",
}


class Compared(NamedTuple):
    """A row. runs: on how many each figure rests, by allocator; sizes are in bytes."""

    program: str
    gpu: str
    runs: Mapping[str, int]
    live: float | None
    reserved: Mapping[str, float]
    seconds: Mapping[str, float]


def short(gpu: str) -> str:
    """Return a GPU as it is called for short, such as H100."""
    return gpu.removeprefix("NVIDIA ").split()[0]


def compared(rows: Iterable[Compared], captions: Sequence[str]) -> str:
    """Return the table."""
    lines = []
    for row in rows:
        counts = sorted(set(row.runs.values()))
        lines.append(
            [
                *(row.program, row.gpu, " or ".join(map(str, counts))),
                number(row.live, 2, GIB),
                *(
                    marked(number(row.reserved[each], 2, GIB), row.runs[each])
                    for each in ALLOCATORS
                ),
                *(marked(number(row.seconds[each], 2), row.runs[each]) for each in ALLOCATORS),
            ]
        )
    return table(
        f"program | GPU | runs : | live, GiB : | reserved, GiB: {NAMES['expandable']} : "
        f"| {NAMES['default']} : | gmlake : | seconds: {NAMES['expandable']} : "
        f"| {NAMES['default']} : | gmlake :",
        lines,
        *captions,
    )
