"""The pictures that are tables: policies side by side as bars, and the blocks at the peak."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gmlake.pictures import look
from gmlake.pictures.figures import Block, Blocks, Policies
from gmlake.units import format_share, format_size

_PERCENT = 100.0


def policies_table(policies: Policies) -> str:
    """Return one row per policy: a bar of its reserved bytes, with the live part marked."""
    widest = max([*policies.reserved_bytes, policies.live_bytes, 1])
    least = min(policies.reserved_bytes, default=0)
    rows = [
        _policy_row(values, policies.live_bytes, widest, is_best=values[1] == least)
        for values in zip(
            policies.names,
            policies.reserved_bytes,
            policies.oom_counts,
            policies.driver_ms,
            strict=True,
        )
    ]
    head = table_head(
        [
            ("policy", "text"),
            ("reserved at the peak", "number"),
            ("", ""),
            ("live / reserved", "number"),
            ("refused", "number"),
            ("driver ms", "number"),
        ]
    )
    live = f"{format_size(policies.live_bytes)} live at the peak"
    legend = (
        '<ul class="legend"><li class="key">'
        f'<i class="area" style="--colour:{look.PALETTE[0]}"></i>{live}</li><li class="key">'
        f'<i class="area" style="--colour:{look.FREE}"></i>reserved beyond it</li></ul>'
    )
    table = f'<table class="sortable">{head}{table_body(rows)}</table>'
    return f'{legend}<div class="scroll">{table}</div>'


def _policy_row(
    values: tuple[str, int, int, float], live_bytes: int, widest: int, *, is_best: bool
) -> str:
    name, reserved, refused, driver_ms = values
    live = min(live_bytes, reserved)
    share = live / reserved if reserved else 1.0
    bar = (
        f'<span class="bar" style="width:{_PERCENT * reserved / widest:.2f}%">'
        f'<span style="width:{_PERCENT * share:.2f}%"></span></span>'
    )
    best = ' <span class="best">least</span>' if is_best else ""
    cells = [
        f'<th scope="row" data-value="{escape(name)}">{escape(name)}{best}</th>',
        number_cell(format_size(reserved), reserved),
        f'<td class="bars" title="{format_share(share)} live">{bar}</td>',
        number_cell(format_share(share), share),
        number_cell(f"{refused:,}", refused, "bad" if refused else ""),
        number_cell(f"{driver_ms:,.1f}", driver_ms),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def blocks_table(blocks: Blocks, number: int) -> str:
    """Return a table to sort and to search; the call path of a row opens on demand."""
    shown = sum(row.size_bytes for row in blocks.rows)
    head = table_head(
        [
            ("size", "number"),
            ("share", "number"),
            ("blocks", "number"),
            ("category", "text"),
            ("asked for at", "text"),
        ],
        descending="size",
    )
    rows = (_block_row(row, blocks.total_bytes) for row in blocks.rows)
    count = sum(row.count > 0 for row in blocks.rows)
    said = f"{count:,} rows, {format_size(shown)} of {format_size(blocks.total_bytes)}"
    return (
        f"{search_box(number, said)}"
        f'<div class="scroll"><table class="sortable blocks">{head}{table_body(rows)}</table></div>'
    )


def search_box(number: int, said: str) -> str:
    """Return the search box of a section's table, and its count of shown rows."""
    return (
        f'<p class="controls"><label for="search{number}">Search</label> '
        f'<input type="search" id="search{number}" autocomplete="off" spellcheck="false"> '
        f'<output for="search{number}">{said}</output></p>'
    )


def _block_row(row: Block, total_bytes: int) -> str:
    share = row.size_bytes / total_bytes if total_bytes else 0.0
    colour = look.category_colour(row.category)
    mark = f'<i class="area" style="--colour:{colour}"></i>'
    cells = [
        number_cell(format_size(row.size_bytes), row.size_bytes),
        number_cell(format_share(share), row.size_bytes),
        number_cell(f"{row.count:,}", row.count),
        f'<td data-value="{escape(row.category)}">{mark}{escape(row.category)}</td>',
        f'<td data-value="{escape(row.site)}">{_site(row)}</td>',
    ]
    return f"<tr{_follows(row)}>{''.join(cells)}</tr>"


def _follows(row: Block) -> str:
    """Return a row's block counts at other moments, for the page."""
    gone = "" if row.count else ' data-gone="true"'
    if not row.counts:
        return gone
    counts = " ".join(f"{moment}:{count}" for moment, count in row.counts)
    return f'{gone} data-size="{row.one_bytes}" data-counts="{counts}"'


def _site(row: Block) -> str:
    where = [f"at {row.address:#x}"] if row.address and row.count == 1 else []
    where += [f"stream {row.stream}"] if row.stream else []
    where += [f"in {row.pool}"] if row.pool else []
    lines = [escape(line) for line in row.frames] + where
    site = escape(row.site) or '<span class="none">not known</span>'
    if not lines:
        return f"<code>{site}</code>"
    path = "\n".join(lines)
    return f"<details><summary><code>{site}</code></summary><pre>{path}</pre></details>"


def table_head(
    columns: Iterable[tuple[str, str]], descending: str = "", *, plain: bool = False
) -> str:
    """Return the head of a table: columns of kind "number" or "text" sort, others do not.

    plain: no column sorts.
    """
    cells = []
    for title, kind in columns:
        if plain:
            style = ' class="number"' if kind == "number" else ""
            cells.append(f'<th scope="col"{style}>{title}</th>')
            continue
        if not kind:
            cells.append('<td aria-hidden="true"></td>')
            continue
        order = ' aria-sort="descending"' if title == descending else ""
        cells.append(
            f'<th scope="col" data-kind="{kind}"{order}><button type="button">{title}</button></th>'
        )
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def table_body(rows: Iterable[str]) -> str:
    """Return the body of a table."""
    return f"<tbody>{''.join(rows)}</tbody>"


def as_text(data: str) -> str:
    """Return JSON that cannot end the element it is in."""
    return data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def number_cell(text: str, value: float, style: str = "") -> str:
    """Return a cell that sorts by `value`."""
    return f'<td class="number {style}" data-value="{value!r}">{text}</td>'
