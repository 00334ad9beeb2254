"""Puts figures together into one HTML page that needs nothing else: no network, no other file.

plot.js draws the pictures that zoom; tables are plain HTML. Texts from a recording (labels, names,
call paths) are always escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from html import escape
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from gmlake.pictures import (
    address_map,
    html_tables,
    moments_panel,
    packing,
    timeline,
)
from gmlake.pictures.drawing import Drawing, Key
from gmlake.pictures.figures import (
    AddressMap,
    Blocks,
    Figure,
    Moments,
    OwnFigure,
    Packing,
    Policies,
    Report,
    Summary,
    Timeline,
)

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

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="gmlake">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data: blob:; font-src data:">
<title>{title}</title>
<style>{style}</style>
<script>{script}</script>
</head>
<body>
<main>
<h1>{title}</h1>
{summaries}
{facts}
{axes}
{figures}
{help}
</main>
</body>
</html>
"""


_HELP: Final = (
    '<p class="note help" id="keys">Drag across a picture to zoom, or hold Ctrl and scroll; '
    "with the keyboard, Tab to a picture, then + and \u2212 zoom, arrows move, and 0 resets.</p>"
)


_AXES: Final = (
    '<p class="controls axes" hidden><span role="group" aria-label="what is across">Across: '
    '<button type="button" data-axis="events" aria-pressed="true">events</button>'
    '<button type="button" data-axis="times" aria-pressed="false">time</button></span>'
    '<button type="button" data-startup aria-pressed="false" hidden>with the start-up</button></p>'
)


def render_page(report: Report) -> str:
    """Return the page as text."""
    sections = [_section(number, figure) for number, figure in enumerate(report.figures)]
    drawn = [number for number, section in enumerate(sections) if "data-for=" in section]
    if drawn:  # the browser need not have read what follows
        sections[drawn[0]] += "<script>drawFirst()</script>"
    runs = groupby(zip(report.figures, sections, strict=True), lambda pair: _group(pair[0]))
    devices = (
        f'<div class="run" id="run{group}" data-group="{group}">'
        f"{''.join(section for _, section in pairs)}</div>"
        for group, pairs in runs
    )
    return _PAGE.format(
        title=escape(report.title),
        style=_resource("page.css"),
        summaries=_summaries(report.summaries),
        facts=_facts(report.facts),
        axes=_AXES if any("data-run=" in section for section in sections) else "",
        figures="\n".join(devices),
        help=_HELP if drawn else "",
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
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _summaries(summaries: Sequence[Summary]) -> str:
    """Return a line that leads to the part of each device."""
    if not summaries:
        return ""
    bad = ' class="bad"'
    links = (
        f'<li><a href="#run{one.group}"{bad if one.is_refused else ""}>'
        f"{escape(one.name)}: {escape(one.says)}</a></li>"
        for one in summaries
    )
    return f'<nav aria-label="devices"><ul class="summaries">{"".join(links)}</ul></nav>'


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    if not facts:
        return ""
    items = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{"".join(items)}</dl>'


# ---- one figure


def _frame_pixels(figure: Figure) -> int:
    return figure.frame_pixels if isinstance(figure, OwnFigure) else _FRAME_PIXELS[type(figure)]


def _section(number: int, figure: Figure) -> str:
    if isinstance(figure, Policies):
        content = html_tables.policies_table(figure)
    elif isinstance(figure, Blocks):
        content = html_tables.blocks_table(figure, number)
    elif isinstance(figure, Moments):
        content = moments_panel.moments_panel(figure)
    elif isinstance(figure, OwnFigure):
        drawn = figure.draw(number)
        content = drawn if isinstance(drawn, str) else _picture(number, drawn)
    else:
        content = _picture(number, _DRAWN[type(figure)](figure))
    return _around(number, figure, content)


def _around(number: int, figure: Figure, content: str) -> str:
    kind = type(figure).__name__.lower()
    note = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    topic = getattr(figure, "topic", "")
    follows = f' data-topic="{escape(topic)}"' if topic else ""
    section = (
        f'<section class="{kind}" data-group="{_group(figure)}"{follows} '
        f'aria-labelledby="title{number}">'
        f'<h2 id="title{number}">{escape(figure.title)}</h2>{content}{note}</section>'
    )
    if isinstance(figure, Moments):
        section += moments_panel.slider(figure, number)
    return section


def _group(figure: Figure) -> int:
    """Return the number of a figure's run; 0 for none."""
    return getattr(figure, "group", 0)


def _picture(number: int, drawing: Drawing) -> str:
    remarks = "".join(f'<p class="remark">{escape(remark)}</p>' for remark in drawing.remarks)
    return (
        f'<p class="says" id="says{number}">{escape(drawing.says)}</p>{remarks}'
        f'<div class="controls">{_legend(drawing.keys)}{_choices(number, drawing)}'
        f"{_buttons(number)}</div>"
        f'<div class="picture" id="picture{number}" style="height:{drawing.plot.height}px" '
        f'data-axes="{drawing.plot.axes}" {_run(drawing)} tabindex="0" '
        f'role="application" aria-labelledby="title{number}" '
        f'aria-describedby="says{number} keys"></div>'
        f'<script type="application/json" data-for="picture{number}">'
        f"{html_tables.as_text(drawing.plot.to_json())}</script>"
    )


def _run(drawing: Drawing) -> str:
    """Return the run axis of a drawing, for the page, which can switch it to times."""
    if drawing.run is None:
        return ""
    return f'data-run="{escape(json.dumps(asdict(drawing.run)))}"'


def _legend(keys: Sequence[Key]) -> str:
    entries = []
    for key in keys:
        mark = f'<i class="{key.style}" style="--colour:{key.colour}"></i>{escape(key.label)}'
        if key.name:
            button = f'<button type="button" aria-pressed="true" data-name="{escape(key.name)}">'
            entries.append(f'<li class="key">{button}{mark}</button></li>')
        else:
            entries.append(f'<li class="key">{mark}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def _choices(number: int, drawing: Drawing) -> str:
    if not drawing.choices:
        return ""
    options = "".join(
        f'<option value="{index}">{escape(choice)}</option>'
        for index, choice in enumerate(drawing.choices)
    )
    return (
        f'<span><label for="choice{number}">{escape(drawing.choices_label)}</label> '
        f'<select id="choice{number}"><option value="">all</option>{options}</select></span>'
    )


def _buttons(number: int) -> str:
    actions = (
        ("in", "+", "zoom in"),
        ("out", "\u2212", "zoom out"),
        ("left", "\u25c0", "move left"),
        ("right", "\u25b6", "move right"),
        ("reset", "\u21ba", "show all"),
    )
    buttons = (
        f'<button type="button" data-act="{act}" aria-label="{name}" title="{name}" '
        f'aria-controls="picture{number}">{sign}</button>'
        for act, sign, name in actions
    )
    return f'<span class="zoom" role="group" aria-label="zoom">{"".join(buttons)}</span>'
