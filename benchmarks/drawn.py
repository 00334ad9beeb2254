"""Colours and elements of SVG pictures, for light and dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Look:
    """Colours of a picture; four are for what is compared."""

    paper: str
    ink: str
    faint: str
    compared: tuple[str, str, str, str]


LOOKS = {
    "": Look("#ffffff", "#24292f", "#d8dee4", ("#8b929c", "#c77d1a", "#2e8b68", "#2f6fd6")),
    "-dark": Look("#0d1117", "#e6edf3", "#30363d", ("#9aa4b0", "#e0a04a", "#4fb890", "#6ea2ff")),
}
"""By what is added to the name of a picture's file."""


def text(x: float, y: float, words: str, look: Look, *more: str) -> str:
    """Return words that begin at a place; more: attributes."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{look.ink}" {" ".join(more)}>{escape(words)}</text>'
    )


def box(x: float, top: float, width: float, height: float, how: str) -> str:
    """Return a rectangle; how: attributes."""
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{top:.1f}" {size} {how}/>'


def opened(title: str, width: float, height: float, look: Look) -> list[str]:
    """Return how a picture begins; it ends with `</svg>`."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        "<style>text{font:10px sans-serif}.title{font-weight:600;font-size:11px}</style>",
        box(0, 0, width, height, f'fill="{look.paper}"'),
    ]
