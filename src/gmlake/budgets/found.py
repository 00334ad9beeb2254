"""What was found of one test: its peak, and the lines that held it; and how two of these differ."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gmlake.snapshots.classes import PLURALS
from gmlake.snapshots.comparing import Change, changes
from gmlake.snapshots.frames import Frame, Origin, frame_of, named_of
from gmlake.snapshots.queries import Held, Row

_LONGEST: Final = 100  # of a line's text, in characters
_NOWHERE: Final = "no line of Python, as in a backward pass"


@dataclass(frozen=True)
class Line:
    """Memory that one line of the program asked for, and that was held at one moment.

    file, function, number: the line; "" and 0 if none is known. code: its text. via: the line of a
    library that it called. kind: a category. size_bytes: of all its blocks.
    """

    file: str
    function: str
    number: int
    code: str
    via: str
    kind: str
    size_bytes: int

    def __str__(self) -> str:
        """Name the line and what it holds, as "model.py:88 in forward(), activations: h = f(x)"."""
        place = f"{self.file}:{self.number}" if self.file else _NOWHERE
        inside = f" in {self.function}()" if self.function.isidentifier() else ""
        via = f" via {self.via}" if self.via else ""
        kind = f", {PLURALS[self.kind]}" if self.kind in PLURALS else ""
        return f"{place}{inside}{via}{kind}" + (f": {self.code}" if self.code else "")


@dataclass(frozen=True)
class Found:
    """What one test needed, on its worst rank. Sizes in bytes.

    peak_bytes: of its tensors. reserved_bytes: by PyTorch, or by the allocator of the mark.
    device: what it ran on. lines: what held the peak, the largest first.
    """

    peak_bytes: int
    reserved_bytes: int
    device: str
    lines: tuple[Line, ...]
    rank: int = 0
    ranks: int = 1


def found_of(known: Mapping[str, Any]) -> Found:
    """Return what asdict() made a dictionary of. Raises TypeError, KeyError for another."""
    lines = tuple(Line(**line) for line in known["lines"])
    return Found(**{**known, "lines": lines})


def lines_of(held: Held, root: Path) -> list[Line]:
    """Return what each line holds at one moment, by category, the largest first."""
    sizes: Counter[Line] = Counter()
    for row in held.rows:
        sizes[_line(row, f"{root}/")] += row.size_bytes
    found = [replace(line, size_bytes=size) for line, size in sizes.items()]
    return sorted(found, key=lambda one: (-one.size_bytes, str(one)))


def _line(row: Row, root: str) -> Line:
    path, kind = [frame_of(text) for text in row.more["frames"]], row.more["category"]
    named = named_of(path)
    if not named:
        return Line("", "", 0, "", "", kind, 0)
    own = named[0]
    below = [one for one in path[: path.index(own)] if one.origin is Origin.LIBRARY]
    via = f"{_file(below[0], root)}:{below[0].line}" if below else ""
    code = linecache.getline(own.file, int(own.line)).strip()[:_LONGEST]
    return Line(_file(own, root), own.function, int(own.line), code, via, kind, 0)


def _file(frame: Frame, root: str) -> str:
    """Return a file relative to the project, or to where libraries are installed."""
    is_own = frame.file.startswith(root) and not frame.skipped
    return frame.file[len(root) if is_own else frame.skipped :]


def grown(before: Sequence[Line], after: Sequence[Line]) -> tuple[Change, ...]:
    """Return by how much the memory of each line differs, that which grew most first.

    A line is known by its text, wherever it has moved; one whose text has changed by its place
    among the others of its function.
    """
    found = changes(tuple(_rows(before, after)), tuple(_rows(after, before)))
    return tuple(one for one in found if one.change_bytes)


def _rows(lines: Sequence[Line], others: Sequence[Line]) -> Iterator[Row]:
    known = {_key(line) for line in others}
    count: Counter[tuple[str, ...]] = Counter()
    for line in sorted(lines, key=lambda one: one.number):
        key = _key(line) if _key(line) in known else (line.file, line.function, line.kind)
        count[key] += 1
        yield Row(str(line), line.size_bytes, 1, (*key, count[key]))


def _key(line: Line) -> tuple[str, ...]:
    return line.file, line.function, line.kind, line.code, line.via.rpartition(":")[0]
