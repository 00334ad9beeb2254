"""Draw how fast each allocator trains by length, from the result: docs/images/frontier*.svg.

    PYTHONPATH=benchmarks python -m gpu.frontier_picture

A line is the median of the rounds, the shade behind it their spread. A cross marks the last length
that every round came through.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import machine
from drawn import LOOKS, Look, box, opened, text
from gpu.frontier import medians
from gpu.settings import FRONTIERS

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = machine.ROOT / "docs" / "images"
NAMES = {
    "default": "PyTorch's default",
    "expandable": "expandable segments",
    "async": "cudaMallocAsync",
    "gmlake": "gmlake",
}
"""In the order of their colours."""

_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 270, 170, 52, 66, 44
_TICKS = 4
_CROSS = 4.0

Speeds = dict[str, dict[int, tuple[float, float, float]]]


@dataclass(frozen=True)
class _Panel:
    """A model at a place. shortest, longest: at its sides; most: the speed at its upper edge."""

    look: Look
    left: float
    shortest: int
    longest: int
    most: float

    def x(self, length: float) -> float:
        """Return where a length is; distances are those of its logarithm."""
        share = math.log(length / self.shortest) / math.log(self.longest / self.shortest)
        return self.left + share * _WIDTH

    def y(self, speed: float) -> float:
        """Return where a speed is."""
        return _TOP + _HEIGHT * (1 - speed / self.most)

    def frame(self, title: str) -> Iterator[str]:
        """Draw the title, and lines with what they stand for."""
        yield text(self.left, _TOP - 10, title, self.look, 'class="title"')
        for tick in range(_TICKS + 1):
            speed = self.most * tick / _TICKS
            y = self.y(speed)
            yield box(self.left, y, _WIDTH, 0.6, f'fill="{self.look.faint}"')
            yield text(self.left - 4, y + 3, f"{speed:,.0f}", self.look, 'text-anchor="end"')
        ratio = self.longest / self.shortest
        for tick in range(_TICKS + 1):
            length = self.shortest * ratio ** (tick / _TICKS)
            y = _TOP + _HEIGHT + 14
            yield text(self.x(length), y, f"{length:,.0f}", self.look, 'text-anchor="middle"')

    def line(self, by_length: dict[int, tuple[float, float, float]], color: str) -> Iterator[str]:
        """Draw an allocator, to the length that it ends with."""
        points = {self.x(length): speeds for length, speeds in by_length.items()}
        upper = [f"{x:.1f},{self.y(speeds[2]):.1f}" for x, speeds in points.items()]
        lower = [f"{x:.1f},{self.y(speeds[0]):.1f}" for x, speeds in points.items()]
        middle = [f"{x:.1f},{self.y(speeds[1]):.1f}" for x, speeds in points.items()]
        area = " ".join([*upper, *reversed(lower)])
        yield f'<polygon points="{area}" fill="{color}" fill-opacity="0.15"/>'
        how = f'fill="none" stroke="{color}" stroke-width="1.6"'
        yield f'<polyline points="{" ".join(middle)}" {how}/>'
        x, y = (float(part) for part in middle[-1].split(","))
        one, two = x - _CROSS, x + _CROSS
        arms = f"M{one:.1f} {y - _CROSS:.1f}L{two:.1f} {y + _CROSS:.1f}"
        arms += f"M{one:.1f} {y + _CROSS:.1f}L{two:.1f} {y - _CROSS:.1f}"
        yield f'<path d="{arms}" stroke="{color}" stroke-width="2"/>'


def _rounded(most: float) -> float:
    """Return a round number that is not less."""
    unit = 10.0 ** math.floor(math.log10(most))
    return next(unit * part for part in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10) if unit * part >= most)


def _picture(speeds: dict[str, Speeds], look: Look) -> str:
    width = len(speeds) * (_WIDTH + _LEFT) + 24
    title = "Tokens a second by the longest sequence of a step; a cross: the last that fits"
    parts = [
        *opened(title, width, _TOP + _HEIGHT + _BELOW, look),
        text(_LEFT, 16, title, look, 'class="title"'),
    ]
    x = float(_LEFT)
    for name, color in zip(NAMES.values(), look.compared, strict=True):
        parts += [box(x, 27, 14, 3, f'fill="{color}"'), text(x + 19, 32, name, look)]
        x += 34 + 5.6 * len(name)
    for number, (model, by_allocator) in enumerate(speeds.items()):
        lengths = [length for by_length in by_allocator.values() for length in by_length]
        most = max(each[2] for by_length in by_allocator.values() for each in by_length.values())
        left = _LEFT + number * (_WIDTH + _LEFT)
        panel = _Panel(look, left, min(lengths), max(lengths), _rounded(most))
        parts += panel.frame(FRONTIERS[model].partition(",")[0])
        for name, color in zip(NAMES, look.compared, strict=True):
            if by_allocator.get(name):
                parts += panel.line(by_allocator[name], color)
    return "\n".join([*parts, "</svg>\n"])


def pictures(result: dict[str, Any]) -> dict[str, str]:
    """Return every picture by the name of its file."""
    models = dict.fromkeys(run["model"] for run in result["runs"])
    speeds = {
        model: medians(run for run in result["runs"] if run["model"] == model) for model in models
    }
    return {f"frontier{dark}.svg": _picture(speeds, look) for dark, look in LOOKS.items()}


def main() -> None:
    """Write all pictures."""
    result = json.loads((machine.RESULTS / "gpu_frontier.json").read_text(encoding="utf-8"))
    for name, drawn in pictures(result).items():
        (IMAGES / name).write_text(drawn, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
