"""Draw how fast each allocator trains by length, from the result: docs/images/frontier*.svg.

    PYTHONPATH=benchmarks python -m gpu.frontier_picture

A line is the median of the rounds, the shade behind it their spread. A cross marks the last length
that every round came through. Each line is thinner than those below it and each cross smaller, so
that all of them are seen where they are one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import machine
from drawn import LOOKS, Look, box, opened, text
from gpu.frontier import medians

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
TITLES = {
    "dense": "Llama 1.1B, all parameters trained",
    "moe": "mixture of experts, 1B parameters",
    "fsdp2": "Llama 2.2B, FSDP2 on two GPUs",
}

_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW, _RIGHT = 270, 170, 56, 66, 30, 24
_TICKS = 4
_APART = 36.0
"""Of lengths that are written below a panel."""
_KEY = 150
_THICK = (3.8, 3.0, 2.2, 1.4)
_CROSSES = (6.4, 5.5, 4.6, 3.7)

ByLength = dict[int, tuple[float, float, float]]


@dataclass(frozen=True)
class _Panel:
    """A model at a place. lengths: in order; most: the speed at its upper edge."""

    look: Look
    left: float
    lengths: list[int]
    most: float

    def x(self, length: float) -> float:
        """Return where a length is; distances are those of its logarithm."""
        shortest, longest = self.lengths[0], self.lengths[-1]
        return self.left + _WIDTH * math.log(length / shortest) / math.log(longest / shortest)

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
        for length in self.written():
            y = _TOP + _HEIGHT + 14
            yield text(self.x(length), y, f"{length:,}", self.look, 'text-anchor="middle"')

    def written(self) -> list[int]:
        """Return the lengths for which there is room below, the longest among them."""
        *others, longest = self.lengths
        kept: list[int] = []
        for length in others:
            is_free = not kept or self.x(length) - self.x(kept[-1]) >= _APART
            if is_free and self.x(longest) - self.x(length) >= _APART:
                kept.append(length)
        return [*kept, longest]

    def points(self, by_length: ByLength, which: int) -> list[str]:
        """Return where the least speeds are (0), the medians (1), or the most (2)."""
        return [f"{self.x(length):.1f},{self.y(of[which]):.1f}" for length, of in by_length.items()]

    def area(self, by_length: ByLength, color: str) -> str:
        """Draw how far an allocator's rounds are apart."""
        points = " ".join([*self.points(by_length, 2), *reversed(self.points(by_length, 0))])
        return f'<polygon points="{points}" fill="{color}" fill-opacity="0.15"/>'

    def line(self, by_length: ByLength, color: str, thick: float, arm: float) -> Iterator[str]:
        """Draw an allocator's medians, to the length that it ends with."""
        points = self.points(by_length, 1)
        middle = " ".join(points)
        how = f'fill="none" stroke="{color}" stroke-width="{thick}"'
        yield f'<polyline points="{middle}" {how}/>'
        x, y = map(float, points[-1].split(","))
        arms = f"M{x - arm:.1f} {y - arm:.1f}L{x + arm:.1f} {y + arm:.1f}"
        arms += f"M{x - arm:.1f} {y + arm:.1f}L{x + arm:.1f} {y - arm:.1f}"
        yield f'<path d="{arms}" stroke="{color}" stroke-width="2"/>'


def _rounded(most: float) -> float:
    """Return a round number that is not less."""
    unit = 10.0 ** math.floor(math.log10(most))
    return next(unit * part for part in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10) if unit * part >= most)


def _picture(speeds: dict[str, dict[str, ByLength]], look: Look) -> str:
    width = len(speeds) * (_WIDTH + _LEFT) + _RIGHT
    title = "Tokens a second by the longest sequence of a step; a cross: the last that fits"
    parts = [
        *opened(title, width, _TOP + _HEIGHT + _BELOW, look),
        text(_LEFT, 16, title, look, 'class="title"'),
    ]
    for number, (name, color) in enumerate(zip(NAMES.values(), look.compared, strict=True)):
        x = _LEFT + number * _KEY
        parts += [box(x, 27, 14, 3, f'fill="{color}"'), text(x + 19, 32, name, look)]
    for number, (model, by_allocator) in enumerate(speeds.items()):
        lengths = sorted({length for by_length in by_allocator.values() for length in by_length})
        most = max(each[2] for by_length in by_allocator.values() for each in by_length.values())
        left = _LEFT + number * (_WIDTH + _LEFT)
        panel = _Panel(look, left, lengths, _rounded(most))
        parts += panel.frame(TITLES[model])
        drawn = [
            (by_allocator[name], color, thick, arm)
            for name, color, thick, arm in zip(NAMES, look.compared, _THICK, _CROSSES, strict=True)
            if by_allocator.get(name)
        ]
        parts += [panel.area(by_length, color) for by_length, color, *_ in drawn]
        parts += [part for each in drawn for part in panel.line(*each)]
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
