"""Draw the papers' figures again from the result: ours filled, what the papers say hollow.

python benchmarks/papers/draw.py

Writes docs/images/papers-*.svg, for light and dark pages, from benchmarks/results/papers.json.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

from drawn import LOOKS, Look, box, opened, text  # noqa: E402
from papers.published import GROWING, STOCK, WITH_PLANS, WITH_STITCHING  # noqa: E402
from papers.tables import said_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULT = ROOT / "benchmarks" / "results" / "papers.json"
IMAGES = ROOT / "docs" / "images"


WAYS = {
    "caching": STOCK,
    "expandable": GROWING,
    "gmlake-paper, 2 MiB": WITH_STITCHING,
    "stitch": WITH_PLANS,
}
"""Policies that are drawn, each with whose published figure stands beside it."""

_WIDTH, _HEIGHT, _GAP, _LEFT, _TOP = 300, 120, 34, 40, 62
_GIB = 1 << 30


@dataclass(frozen=True)
class Panel:
    """Jobs side by side. labels: one for each job."""

    title: str
    jobs: list[dict[str, Any]]
    labels: list[str]


def _panels_of_tuning(jobs: list[dict[str, Any]]) -> Iterator[Panel]:
    for model in dict.fromkeys(job["model"] for job in jobs):
        for figure, label, name in (
            ("10", lambda job: job["strategy"], "strategies"),
            ("11", lambda job: str(job["ranks"]), "LR, number of GPUs"),
            ("13", lambda job: str(job["batch"]), "LR, batch"),
        ):
            shown = [job for job in jobs if (job["model"], job["figure"]) == (model, figure)]
            if figure == "13":
                shown += [job for job in jobs if job["name"] == f"{model}-LR-4-ranks"]
                shown.sort(key=lambda job: job["batch"])
            title = f"{model}: {name} (figure {figure})"
            yield Panel(title, shown, [label(job) for job in shown])


def _panels_of_stages(jobs: list[dict[str, Any]]) -> Iterator[Panel]:
    for model in ("gpt2-345m", "llama2-7b", "qwen1.5-moe"):
        shown = [job for job in jobs if (job["model"], job["figure"]) == (model, "8")]
        yield Panel(f"{model} (figure 8)", shown, [job["strategy"] for job in shown])
    for figure, name in (("9b", "recomputation"), ("9c", "virtual pipeline")):
        shown = [job for job in jobs if job["figure"] == figure]
        labels = [job["model"].removeprefix("qwen2.5-") for job in shown]
        yield Panel(f"qwen2.5: {name} (figure {figure})", shown, labels)
    shown = [job for job in jobs if job["figure"] == "10" or job["name"] == "llama2-7b-R"]
    shown.sort(key=lambda job: job["batch"])
    labels = [str(job["batch"]) for job in shown]
    yield Panel("llama2-7b: micro-batch (figure 10)", shown, labels)


class _Drawing:
    """One panel at a place. most: the value at its upper edge."""

    def __init__(self, look: Look, left: float, top: float, most: float) -> None:
        self.look, self.left, self.base, self.most = look, left, top + _HEIGHT, most

    def height(self, value: float) -> float:
        """Return how far above the base a value is."""
        return min(value / self.most, 1.0) * _HEIGHT

    def frame(self, panel: Panel, ticks: list[tuple[float, str]]) -> Iterator[str]:
        """Draw the title and the lines behind the bars."""
        yield text(self.left, self.base - _HEIGHT - 8, panel.title, self.look, 'class="title"')
        for value, words in ticks:
            y = self.base - self.height(value)
            yield box(self.left, y, _WIDTH, 0.6, f'fill="{self.look.faint}"')
            yield text(self.left - 4, y + 3, words, self.look, 'text-anchor="end"')

    def job(
        self, place: int, count: int, job: dict[str, Any], value: Callable[[dict[str, Any]], float]
    ) -> Iterator[str]:
        """Draw the bars of one job."""
        slot = _WIDTH / count
        width = slot * 0.86 / (2 * len(WAYS))
        x = self.left + slot * (place + 0.07)
        is_share = self.most == 1
        said = said_of(job) if is_share else {}
        for (way, other), colour in zip(WAYS.items(), self.look.compared, strict=True):
            told = job["policies"][way]
            height = self.height(value(told))
            if told["refused"] and is_share:
                cross = f'text-anchor="middle" style="fill:{colour}"'
                yield text(x + width / 2, self.base - 2, "x", self.look, cross)
            else:
                filled = width if is_share else 2 * width
                yield box(x, self.base - height, filled * 0.9, height, f'fill="{colour}"')
            if other in said:
                high = self.height(said[other].high)
                low = self.height(said[other].low) if said[other].low < said[other].high else 0
                how = f'fill="none" stroke="{colour}" stroke-width="0.9"'
                yield box(x + width, self.base - high, width * 0.8, max(high - low, 1), how)
            x += 2 * width


def _legend(look: Look, left: float, top: float, published: set[str]) -> Iterator[str]:
    for (way, other), colour in zip(WAYS.items(), look.compared, strict=True):
        yield box(left, top - 8, 9, 9, f'fill="{colour}"')
        yield text(left + 13, top, way, look)
        left += 30 + 6 * len(way)
        if other in published:
            how = f'fill="none" stroke="{colour}" stroke-width="1"'
            yield box(left, top - 8, 9, 9, how)
            yield text(left + 13, top, other, look)
            left += 34 + 6 * len(other)


def _picture(
    title: str,
    panels: list[Panel],
    look: Look,
    *,
    value: Callable[[dict[str, Any]], float],
    is_share: bool,
) -> str:
    """Return an SVG of panels, three in a row."""
    rows = -(-len(panels) // 3)
    width = 3 * (_WIDTH + _LEFT) + 30
    shown = [name for panel in panels for job in panel.jobs for name in said_of(job)]
    published = set(shown) if is_share else set[str]()
    height = _TOP + rows * (_HEIGHT + _GAP + 18)
    parts = [
        *opened(title, width, height, look),
        text(_LEFT, 16, title, look, 'class="title"'),
        *_legend(look, _LEFT, 34, published),
    ]
    for number, panel in enumerate(panels):
        left = _LEFT + number % 3 * (_WIDTH + _LEFT)
        top = _TOP + number // 3 * (_HEIGHT + _GAP + 18)
        values = [value(job["policies"][way]) for job in panel.jobs for way in WAYS]
        most = 1.0 if is_share else max(20.0, 20.0 * -(-max(values) // 20))
        drawing = _Drawing(look, left, top, most)
        ticks = [(most * part / 4, f"{most * part / 4:.4g}") for part in range(5)]
        parts += drawing.frame(panel, ticks)
        for place, (job, label) in enumerate(zip(panel.jobs, panel.labels, strict=True)):
            parts += drawing.job(place, len(panel.jobs), job, value)
            x = left + _WIDTH / len(panel.jobs) * (place + 0.5)
            parts.append(text(x, drawing.base + 13, label, look, 'text-anchor="middle"'))
    return "\n".join([*parts, "</svg>\n"])


def pictures(result: dict[str, Any]) -> dict[str, str]:
    """Return every picture by the name of its file."""
    jobs = {
        paper: [job for job in result["jobs"] if job["paper"] == paper]
        for paper in ("gmlake", "stalloc")
    }
    tuning, stages = [*_panels_of_tuning(jobs["gmlake"])], [*_panels_of_stages(jobs["stalloc"])]
    share: Callable[[dict[str, Any]], float] = lambda told: told["utilization"]  # noqa: E731
    size: Callable[[dict[str, Any]], float] = lambda told: told["wanted_bytes"] / _GIB  # noqa: E731
    drawn = {}
    for dark, look in LOOKS.items():
        drawn[f"papers-gmlake{dark}.svg"] = _picture(
            "GMLake's trainings: live / reserved", tuning, look, value=share, is_share=True
        )
        drawn[f"papers-gmlake-reserved{dark}.svg"] = _picture(
            "GMLake's trainings: reserved GiB", tuning, look, value=size, is_share=False
        )
        drawn[f"papers-stalloc{dark}.svg"] = _picture(
            "STAlloc's trainings: live / reserved; x: a request is refused",
            stages,
            look,
            value=share,
            is_share=True,
        )
    return drawn


def main() -> None:
    """Write all pictures."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    for name, drawn in pictures(result).items():
        (IMAGES / name).write_text(drawn, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
