"""Draws one device's addresses: rows of the base range, and views with lines to where they lie."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gmlake.pictures import look
from gmlake.pictures.drawing import (
    Drawing,
    Key,
    Plot,
    spread,
)
from gmlake.pictures.figures import AddressMap, Piece, View
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.pictures.figures import Piece, View

_LINES = 12
"""About how many lines all rows take."""

Row = tuple["Piece", ...]


@dataclass(frozen=True)
class Line:
    """Addresses from `begin` to `end`, and the contents at any moment."""

    begin: int
    end: int
    pieces: Row


def fold(rows: Sequence[Row], views: Sequence[View]) -> list[Line]:
    """Return lines, none longer than a power of 2 that the largest view fits into."""
    total = sum(end - begin for begin, end in map(_ends, rows))
    widest = max((view.size_bytes for view in views), default=0)
    width = 1 << (max(widest, total // _LINES, 1) - 1).bit_length()
    return [line for row in rows for line in _lines(row, width)]


def _ends(row: Row) -> tuple[int, int]:
    begin = min(piece.address for piece in row)
    return begin, max(piece.address + piece.size_bytes for piece in row)


def _lines(row: Row, width: int) -> Iterator[Line]:
    begin, end = _ends(row)
    lines: list[list[Piece]] = [[] for _ in range(max(-(-(end - begin) // width), 1))]
    for piece in row:
        stop = piece.address + piece.size_bytes
        first, last = (piece.address - begin) // width, (max(stop, 1) - 1 - begin) // width
        if first == last:
            lines[first].append(piece)
            continue
        for number in range(first, last + 1):
            low = begin + number * width
            lines[number].append(_part(piece, max(piece.address, low), min(stop, low + width)))
    for number, line in enumerate(lines):
        low = begin + number * width
        if any(piece.kind != "absent" for piece in line):
            yield Line(low, min(low + width, end), tuple(line))


def _part(piece: Piece, begin: int, end: int) -> Piece:
    whole = f"part of {format_size(piece.size_bytes)} at {piece.address:#x}"
    label = f"{piece.label}, {whole}" if piece.label else whole
    return replace(piece, address=begin, size_bytes=end - begin, label=label)


class Finder:
    """Finds the lines in which addresses are."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._order = sorted(range(len(lines)), key=lambda number: lines[number].begin)
        self._starts = [lines[number].begin for number in self._order]
        self._ends = [lines[number].end for number in self._order]

    def parts(self, address: int, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (line, offset in the line, offset in the range, size) for each part in a line."""
        begin, end = address, address + size_bytes
        while begin < end:
            place = bisect_right(self._starts, begin) - 1
            if place < 0 or begin >= self._ends[place]:
                if place + 1 >= len(self._starts):
                    return
                begin = self._starts[place + 1]
                continue
            stop = min(end, self._ends[place])
            yield self._order[place], begin - self._starts[place], begin - address, stop - begin
            begin = stop


_AROUND_PIXELS = 64
_LEAST_PIXELS = 150
_BASE_PIXELS = (4, 32)  # of a row: at least, at most
_VIEW_PIXELS = (3, 24)
_PART_PIXELS = 420  # for all rows of a kind, if they are not too many
_NAME_PIXELS = 14
_FILLED = 0.8  # of a row's height
_MOST_VIEWS = 40
_FEW_ROWS = 60
_FEW_LINES = 400
_FAINT, _CLEAR = 0.06, 0.4
_VIEW_COLUMNS = (
    *("view", "left", "right", "middle", "bottom", "top"),
    *("base_left", "base_right", "base_middle", "base_bottom", "base_top"),
    *("colour", "alpha", "line_alpha", "size", "what", "at", "base"),
)


@dataclass(frozen=True)
class _Bar:
    """Where a row is, in pixels from below."""

    bottom: float
    top: float


def draw(addresses: AddressMap) -> Drawing:
    """Return the picture; choosing a view highlights the lines to where its bytes lie."""
    stretches = [row for row in addresses.rows if row]
    views = tuple(sorted(addresses.views, key=lambda view: not view.is_live))[:_MOST_VIEWS]
    rows = fold(stretches, views)
    bases, seen, pixels = _place(len(rows), len(views))
    longest = max(
        [line.end - line.begin for line in rows] + [view.size_bytes for view in views], default=0
    )
    axes = "x" if len(rows) + len(views) <= _FEW_ROWS else "xy"
    plot = Plot(
        (0, spread(0, longest)[1]),
        (0, pixels),
        height=max(int(pixels) + _AROUND_PIXELS, _LEAST_PIXELS),
        axes=axes,
    )
    plot.x |= {"kind": "bytes", "label": "from the start of the row"}
    plot.moment = addresses.shown
    names = [f"{line.begin:#x}" for line in rows]
    _name_rows(plot, bases + seen, names + [f"view {number + 1}" for number in range(len(views))])
    keys = _draw_rows(plot, rows, bases, addresses)
    keys += _draw_views(plot, (rows, bases), (views, seen))
    return Drawing(
        plot,
        tuple(keys),
        _in_words(addresses, stretches),
        choices=tuple(_view_label(number, view) for number, view in enumerate(views)),
        choices_label="show one view",
    )


def _place(base_count: int, view_count: int) -> tuple[list[_Bar], list[_Bar], float]:
    """Return where the rows and views are, from above, and the height of it all."""
    heights = [_height(base_count, _BASE_PIXELS)] * base_count
    heights += [_height(view_count, _VIEW_PIXELS)] * view_count
    total = max(sum(heights), 1.0)
    bars, top = [], total
    for height in heights:
        bars.append(_Bar(top - height * _FILLED, top))
        top -= height
    return bars[:base_count], bars[base_count:], total


def _height(count: int, limits: tuple[int, int]) -> float:
    least, most = limits
    return min(max(_PART_PIXELS / max(count, 1), least), most)


def _view_label(number: int, view: View) -> str:
    state = "live" if view.is_live else "kept"
    label = f"view {number + 1}: {format_size(view.size_bytes)}, {state}, {len(view.pieces)} pieces"
    return f"{label}, {view.label}" if view.label else label


def _name_rows(plot: Plot, bars: list[_Bar], names: list[str]) -> None:
    """Name as many rows as there is room for."""
    shown: dict[float, str] = {}
    last = float("inf")
    for bar, name in zip(bars, names, strict=True):
        middle = (bar.bottom + bar.top) / 2
        if last - middle >= _NAME_PIXELS:
            shown[middle] = name
            last = middle
    plot.name_rows(shown)


# ---- base


_COLUMNS = (
    *("left", "right", "bottom", "top", "colour", "alpha", "first", "end"),
    *("what", "size", "at", "label", "before", "behind"),
)
_HOVER = (
    ("base", "what", ""),
    ("size", "size", "bytes"),
    ("at", "at", ""),
    ("label", "label", ""),
    ("before it", "before", ""),
    ("behind it", "behind", ""),
)


def _draw_rows(plot: Plot, lines: list[Line], bars: list[_Bar], addresses: AddressMap) -> list[Key]:
    colours = dict(zip(addresses.keys, look.colours_of(addresses.keys), strict=True))
    keys: dict[str, Key] = {}
    names = {piece.pool for line in lines for piece in line.pieces if piece.pool}
    pooled = f"free in {min(names)}" if len(names) == 1 else "free in private pools"
    columns: dict[str, dict[str, list[Any]]] = {
        name: {column: [] for column in _COLUMNS} for name in ("held", "base")
    }
    for bar, line in zip(bars, lines, strict=True):
        for piece in line.pieces:
            if piece.kind == "absent":
                continue
            is_used = piece.kind == "used"
            colour = colours.get(piece.key, look.category_colour(piece.key))
            colour = colour if is_used else look.FREE
            key = piece.key if is_used else piece.kind
            if piece.kind == "free" and piece.pool:
                key, colour = pooled, look.FREE_IN_POOLS
            style = {"held": "line", "free": "hollow"}.get(piece.kind, "area")
            keys.setdefault(key, Key(key, colour, style=style))
            what = f"used, {key}" if is_used else piece.kind
            what += f", stream {piece.stream}" if piece.stream else ""
            what += f", in {piece.pool}" if piece.pool else ""
            values = (
                piece.address - line.begin,
                piece.address - line.begin + piece.size_bytes,
                bar.bottom,
                bar.top,
                colour,
                0.9 if is_used else 0.25 if piece.kind == "free" else 0.06,
                piece.first,
                piece.end,
                what,
                piece.size_bytes,
                f"{piece.address:#x}",
                piece.label,
                piece.before,
                piece.behind,
            )
            table = columns["held" if piece.kind == "held" else "base"]
            for name, value in zip(_COLUMNS, values, strict=True):
                table[name].append(value)
    for name, table in columns.items():
        plot.add(
            "rectangle",
            plot.source(table),
            name,
            hover=_HOVER if name == "base" else (),
            colour="@colour",
            alpha="@alpha",
            width=0.5,
        )
    return list(keys.values())


# ---- views


def _draw_views(
    plot: Plot,
    bases: tuple[list[Line], list[_Bar]],
    seen: tuple[tuple[View, ...], list[_Bar]],
) -> list[Key]:
    if not seen[0]:
        return []
    source = plot.source(_pieces_of(bases, seen))
    hover = [
        ("view", "what", ""),
        ("piece", "size", "bytes"),
        ("at", "at", ""),
        ("lies at", "base", ""),
    ]
    plot.add(
        "rectangle",
        source,
        "views",
        colour="@colour",
        alpha="@alpha",
        others=0.15,
        width=0.5,
        tap="view",
        hover=hover,
    )
    of_line: dict[str, Any] = {"colour": "@colour", "alpha": "@line_alpha", "others": 0}
    where: dict[str, Any] = {name: f"base_{name}" for name in ("left", "right", "bottom", "top")}
    edges: dict[str, Any] = {"chosen": 1, "width": 2, "isOutline": True}
    plot.add("rectangle", source, "in the base range", **of_line, **where, **edges)
    ends: dict[str, Any] = {"x": "middle", "low": "top", "x1": "base_middle", "top": "base_bottom"}
    plot.add("segment", source, "lines", **of_line, **ends, chosen=0.9, width=1.5)
    return [Key("lines from a view to where it lies", look.PALETTE[0], "lines", "line")]


def _pieces_of(
    bases: tuple[list[Line], list[_Bar]],
    seen: tuple[tuple[View, ...], list[_Bar]],
) -> dict[str, list[Any]]:
    """Return one entry per piece of a view: where it is in the view and in the base range."""
    (rows, base_bars), (views, view_bars) = bases, seen
    live_lines = sum(len(view.pieces) for view in views if view.is_live)
    alpha = _CLEAR if live_lines <= _FEW_LINES else _FAINT
    finder = Finder(rows)
    columns: dict[str, list[Any]] = {name: [] for name in _VIEW_COLUMNS}
    for number, view, address, base, whole in (
        (index, one, *piece) for index, one in enumerate(views) for piece in one.pieces
    ):
        bar = view_bars[number]
        for line, base_left, offset, size in finder.parts(base, whole):
            left, base_bar = address + offset - view.address, base_bars[line]
            values = (
                number,
                left,
                left + size,
                left + size / 2,
                bar.bottom,
                bar.top,
                base_left,
                base_left + size,
                base_left + size / 2,
                base_bar.bottom,
                base_bar.top,
                look.PALETTE[number % len(look.PALETTE)],
                0.9 if view.is_live else 0.35,
                alpha if view.is_live else 0.0,
                whole,
                _view_label(number, view),
                f"{address:#x}",
                f"{base:#x}",
            )
            for name, value in zip(_VIEW_COLUMNS, values, strict=True):
                columns[name].append(value)
    return columns


def _in_words(addresses: AddressMap, rows: list[tuple[Piece, ...]]) -> str:
    sizes: dict[str, int] = {}
    views = addresses.views
    for piece in (piece for row in rows for piece in row):
        if piece.first <= addresses.shown < piece.end:
            sizes[piece.kind] = sizes.get(piece.kind, 0) + piece.size_bytes
    text = f"{len(rows):,} {'stretch' if len(rows) == 1 else 'stretches'} of the base range"
    if not any(piece.end > 1 for row in rows for piece in row):
        text += (
            f": {format_size(sizes.get('used', 0))} used, {format_size(sizes.get('free', 0))} free"
        )
    if views:
        live = sum(view.is_live for view in views)
        text += f"; {len(views):,} views, {live:,} of them live"
        if live < len(views):
            text += ": lines of others appear when one is chosen"
    rest = sorted(views, key=lambda view: not view.is_live)[_MOST_VIEWS:]
    if rest:
        size = format_size(sum(view.size_bytes for view in rest))
        text += f"; {len(rest):,} of them, {size} of addresses, are not drawn"
    return f"{text}."
