"""The table of what to change: sorted, searched, and filtered by a click on an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import ClassVar

from gmlake.pictures import look
from gmlake.pictures.figures import OwnFigure
from gmlake.pictures.html_tables import number_cell, search_box, table_body, table_head
from gmlake.units import format_size

_COLUMNS = (
    ("peak then", "number"),
    ("saves alone", "number"),
    ("pattern", "text"),
    ("object", "text"),
    ("bytes", "number"),
    ("distance", "number"),
    ("change", "text"),
)


@dataclass(frozen=True)
class FoundRow:
    """One thing to change, or `count` alike. frames: a call path, as of a Block.

    saving_bytes: how much it lowers the peak alone. peak_bytes: the peak with it and with those in
    the rows before it; None if the lowest peak does not need it.
    """

    pattern: str
    object_name: str
    size_bytes: int
    saving_bytes: int
    distance: int
    change: str
    frames: tuple[str, ...] = ()
    count: int = 1
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Found(OwnFigure):
    """The changes: those that lower the peak, one after another, and then the others."""

    rows: tuple[FoundRow, ...]
    colours: Mapping[str, str] = field(default_factory=dict)
    frame_pixels: ClassVar[int] = 560

    def draw(self, number: int) -> str:
        """Return one row for each thing to change; its call path opens on demand."""
        return _table(self, number)


def _table(found: Found, number: int) -> str:
    head = table_head(_COLUMNS)
    said = f"{len(found.rows):,} rows"
    rows = (_row(row, found.colours) for row in found.rows)
    return (
        f"{search_box(number, said)}"
        f'<div class="scroll"><table class="sortable searched">{head}{table_body(rows)}</table>'
        "</div>"
    )


def _row(row: FoundRow, colours: Mapping[str, str]) -> str:
    colour = colours.get(row.pattern, look.FREE)
    mark = f'<i class="area" style="--colour:{colour}"></i>'
    more = f' <span class="none">{row.count:,} times</span>' if row.count > 1 else ""
    name = escape(row.object_name)
    peak = -1 if row.peak_bytes is None else row.peak_bytes
    cells = [
        number_cell("" if row.peak_bytes is None else format_size(peak), peak),
        number_cell(
            format_size(row.saving_bytes), row.saving_bytes, "" if row.saving_bytes else "none"
        ),
        f'<td data-value="{escape(row.pattern)}">{mark}{escape(row.pattern)}</td>',
        f'<td data-value="{name}"><code>{name}</code>{more}</td>',
        number_cell(format_size(row.size_bytes), row.size_bytes),
        number_cell(f"{row.distance:,}", row.distance),
        f'<td data-value="{escape(row.change)}">{_change(row)}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _change(row: FoundRow) -> str:
    if not row.frames:
        return escape(row.change)
    path = "\n".join(escape(frame) for frame in row.frames)
    return f"<details><summary>{escape(row.change)}</summary><pre>{path}</pre></details>"
