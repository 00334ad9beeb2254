"""Puts figures together into one HTML page that needs nothing else: no network, no other file.

plot.js draws the pictures that zoom; tables are plain HTML. Texts from a recording (labels, names,
call paths) are always escaped: by the templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from gmlake.pictures import address_map, look, packing, timeline
from gmlake.pictures.drawing import Drawing, place_of
from gmlake.pictures.figures import (
    AddressMap,
    Blocks,
    Figure,
    Moment,
    Moments,
    OwnFigure,
    Packing,
    Policies,
    Report,
    Timeline,
)
from gmlake.units import format_share, format_size

_DRAWN: Final[dict[type, Callable[[Any], Drawing]]] = {
    Timeline: timeline.draw,
    AddressMap: address_map.draw,
    Packing: packing.draw,
}
_FRAME_STYLE: Final = "width:100%;border:0;color-scheme:light dark"
_FRAME_PIXELS: Final = {
    Timeline: 520,
    AddressMap: 480,
    Packing: 600,
    Policies: 340,
    Blocks: 560,
    Moments: 320,
}
_FRAME_HEAD_PIXELS: Final = 150
_FRAME_MOST_PIXELS: Final = 900

_HERE: Final = Path(__file__).parent
_TEMPLATES: Final = "pictures/templates"


class _Section(NamedTuple):
    """A figure on the page; drawing: None for a table."""

    number: int
    figure: Figure
    drawing: Drawing | None
    content: Markup

    @property
    def kind(self) -> str:
        return type(self.figure).__name__.lower()

    @property
    def group(self) -> int:
        """The number of the figure's run; 0 for none."""
        return getattr(self.figure, "group", 0)

    @property
    def topic(self) -> str:
        return getattr(self.figure, "topic", "")

    @property
    def behind(self) -> Markup | str:
        """The slider between moments; nothing if there is only one."""
        if not isinstance(self.figure, Moments) or len(self.figure.moments) == 1:
            return ""
        return _filled(f"{_TEMPLATES}/slider.html", figure=self.figure, number=self.number)


def render_page(report: Report) -> str:
    """Return the page as text."""
    sections = [_section(number, figure) for number, figure in enumerate(report.figures)]
    drawings = [section.drawing for section in sections if section.drawing is not None]
    drawn = (section.number for section in sections if section.drawing is not None)
    return _rendered(
        f"{_TEMPLATES}/page.html",
        report=report,
        runs=[(group, list(each)) for group, each in groupby(sections, lambda one: one.group)],
        first_drawn=next(drawn, None),  # the browser need not have read what follows
        has_axes=any(drawing.run is not None for drawing in drawings),
        style=_resource("page.css"),
        script=_resource("plot.js") + _resource("page.js"),
    )


def write_page(report: Report, path: str | Path) -> None:
    """Write the page as a file that opens in any browser. Raises OSError."""
    Path(path).write_text(render_page(report), encoding="utf-8")


def in_notebook(report: Report) -> str:
    """Return the page as a frame for a notebook: isolated from it, with its own scrolling."""
    height = _FRAME_HEAD_PIXELS + sum(map(_frame_pixels, report.figures))
    return (
        f'<iframe sandbox="allow-scripts" title="{escape(report.title)}" '
        f'style="{_FRAME_STYLE};height:{min(height, _FRAME_MOST_PIXELS)}px" '
        f'srcdoc="{escape(render_page(report))}"></iframe>'
    )


@cache
def _resource(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


# ---- one figure


def _frame_pixels(figure: Figure) -> int:
    return figure.frame_pixels if isinstance(figure, OwnFigure) else _FRAME_PIXELS[type(figure)]


def _section(number: int, figure: Figure) -> _Section:
    if isinstance(figure, OwnFigure):
        drawing, template = figure.draw(), figure.template
    elif draw := _DRAWN.get(type(figure)):
        drawing, template = draw(figure), ""
    else:
        drawing, template = None, f"{_TEMPLATES}/{type(figure).__name__.lower()}.html"
    content = _filled(
        template or f"{_TEMPLATES}/picture.html", figure=figure, number=number, drawing=drawing
    )
    return _Section(number, figure, drawing, content)


# ---- templates


def _rendered(template: str, **values: object) -> str:
    return _templates().get_template(template).render(values)


def _filled(template: str, **values: object) -> Markup:
    """Return a part of a page, which is not escaped once more."""
    return Markup(_rendered(template, **values))  # noqa: S704


@cache
def _templates() -> Environment:
    """Return the templates, by their paths below the package."""
    made = Environment(
        loader=FileSystemLoader(_HERE.parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["look"] = look
    made.filters |= {
        "size": format_size,
        "share": format_share,
        "count": "{:,}".format,
        "place": _place,
        "script": _in_script,
        "run": lambda run: json.dumps(asdict(run)),
        "told": _told,
    }
    return made


def _in_script(data: str) -> Markup:
    """Return JSON that cannot end the element it is in."""
    text = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(text)  # noqa: S704 (nothing ends a script but "<")


def _place(moment: Moment) -> str:
    if moment.at < 0:
        return "before the first event"
    return place_of(moment.at, "events", moment.seconds)


def _told(moments: Moments) -> str:
    """Return all moments for page.js, with the columns of the table of stranded memory."""
    told = [
        {
            "at": moment.at,
            "seconds": moment.seconds,
            "name": moment.name,
            "place": _place(moment),
            "says": moment.says,
            "live": moment.live_bytes,
            "stranded": [
                [
                    format_size(one.kept_bytes),
                    f"{one.pieces:,}",
                    one.owner,
                    format_size(one.held_bytes),
                    f"{one.blocks:,}",
                    one.since,
                ]
                for one in moment.stranded
            ],
        }
        for moment in moments.moments
    ]
    return json.dumps({"shown": moments.shown, "moments": told}, separators=(",", ":"))
