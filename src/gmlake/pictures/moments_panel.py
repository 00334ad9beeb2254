"""The shown moment in words: its headline, what strands memory, and a slider to others."""

from __future__ import annotations

import json
from html import escape

from gmlake.pictures.drawing import place_of
from gmlake.pictures.figures import Moment, Moments, Stranded
from gmlake.pictures.html_tables import as_text, number_cell, table_body, table_head
from gmlake.units import format_size

_COLUMNS = (
    ("strands", "number"),
    ("pieces", "number"),
    ("asked for at", "text"),
    ("with", "number"),
    ("blocks", "number"),
    ("since", "text"),
)


def moments_panel(moments: Moments) -> str:
    """Return headline and table of the shown moment; the page has all others as data."""
    shown = moments.moments[moments.shown]
    says = "".join(f"<p>{escape(text)}</p>" for text in shown.says)
    is_told = any(moment.stranded for moment in moments.moments)
    return (
        f'<div class="told" role="status">{says}</div>{_table(shown) if is_told else ""}'
        f'<script type="application/json" data-moments="{moments.group}">'
        f"{as_text(_data(moments))}</script>"
    )


def slider(moments: Moments, number: int) -> str:
    """Return the slider between moments; nothing if there is only one."""
    if len(moments.moments) == 1:
        return ""
    name = moments.moments[moments.shown].name
    return (
        f'<div class="mover" data-group="{moments.group}">'
        f'<label for="moment{number}">Moment</label>'
        '<button type="button" data-go="-1" aria-label="one moment back">\u25c0</button>'
        f'<input type="range" id="moment{number}" min="0" max="{len(moments.moments) - 1}" '
        f'value="{moments.shown}">'
        '<button type="button" data-go="1" aria-label="one moment on">\u25b6</button>'
        f'<button type="button" data-go="0">{escape(name)}</button>'
        f'<output for="moment{number}">{escape(_place(moments.moments[moments.shown]))}</output>'
        "</div>"
    )


def _place(moment: Moment) -> str:
    if moment.at < 0:
        return "before the first event"
    return place_of(moment.at, "events", moment.seconds)


def _table(shown: Moment) -> str:
    rows = "".join(map(_row, shown.stranded))
    return (
        '<h3>Who strands memory</h3><p class="note">A free piece cannot grow past the blocks '
        "beside it; a piece between two blocks counts for both.</p>"
        f'<div class="scroll"><table class="stranded">{table_head(_COLUMNS, plain=True)}'
        f"{table_body([rows])}</table></div>"
    )


def _row(one: Stranded) -> str:
    cells = (
        number_cell(format_size(one.kept_bytes), one.kept_bytes),
        number_cell(f"{one.pieces:,}", one.pieces),
        f"<td><code>{escape(one.owner)}</code></td>",
        number_cell(format_size(one.held_bytes), one.held_bytes),
        number_cell(f"{one.blocks:,}", one.blocks),
        f"<td>{escape(one.since)}</td>",
    )
    return f"<tr>{''.join(cells)}</tr>"


def _data(moments: Moments) -> str:
    """Return all moments, with the columns of the table of stranded memory."""
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
