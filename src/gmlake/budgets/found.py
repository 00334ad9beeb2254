"""What a test or a script was found to need, which lines hold it, and how two of these differ."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gmlake.printable import printable
from gmlake.snapshots.classes import PLURALS
from gmlake.snapshots.comparing import Change, changes
from gmlake.snapshots.frames import Frame, Origin, frame_of, named_of
from gmlake.snapshots.queries import Held, Row
from gmlake.snapshots.whole import Snapshot
from gmlake.units import format_size, parse_size

_SLACK: Final = 0.001  # the share of a baseline by which it may be exceeded: figures repeat
_MOST_LINES: Final = 5
_LEAST_PART: Final = 0.01  # of what is needed more: lines with less are not named
_LONGEST: Final = 100  # of a line's text, in characters
_NUMBERS: Final = re.compile(r":(\d+)")

_CONVOLUTION: Final = re.compile(r"\bconv(_transpose)?[123]d\(")

OPEN: Final = " ± workspace"
NOWHERE: Final = "no line of Python, as in a backward pass"


@dataclass(frozen=True)
class Found:
    """What one test or script needed, on its worst rank. Sizes in bytes.

    peak_bytes: of its tensors. reserved_bytes: by PyTorch, or by the allocator of the mark.
    device: what it ran on. lines: what each held of the peak, the largest first. has_convolved:
    whether the peak depends on the workspaces of convolutions, which cuDNN chooses.
    """

    peak_bytes: int
    reserved_bytes: int
    device: str
    lines: Mapping[str, int]
    rank: int = 0
    ranks: int = 1
    has_convolved: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError or AttributeError for what a file has in place of sizes."""
        sizes = (self.peak_bytes, self.reserved_bytes, *self.lines.values())
        if not all(isinstance(size, int) for size in sizes):
            raise TypeError("a size is no whole number")


def lines_of(held: Held, root: Path) -> dict[str, int]:
    """Return what each line holds at one moment, by category, the largest first."""
    sizes: Counter[str] = Counter()
    for row in held.rows:
        sizes[_line(row, f"{root}/")] += row.size_bytes
    return dict(sorted(sizes.items(), key=lambda one: (-one[1], one[0])))


def _line(row: Row, root: str) -> str:
    """Name a line and what it holds, as "model.py:88 in forward(), activations: h = f(x)"."""
    path, kind = [frame_of(text) for text in row.more["frames"]], row.more["category"]
    said = f", {PLURALS[kind]}" if kind in PLURALS else ""
    named = named_of(path)
    if not named:
        return f"{NOWHERE}{said}"
    own = named[0]
    inside = f" in {own.function}()" if own.function.isidentifier() else ""
    below = [one for one in path[: path.index(own)] if one.origin is Origin.LIBRARY]
    via = f" via {_file(below[0], root)}:{below[0].line}" if below else ""
    code = linecache.getline(own.file, int(own.line)).strip()[:_LONGEST]
    place = f"{_file(own, root)}:{own.line}{inside}{via}{said}"
    return f"{place}: {code}" if code else place


def convolves(seen: Snapshot) -> bool:
    """Whether a convolution asked for memory, so that its workspace may be part of the peak."""
    frames = {frame_of(text) for site in seen.sites.values() for text in site.frames}
    lines = (linecache.getline(one.file, int(one.line or 0)) for one in frames)
    return any(map(_CONVOLUTION.search, lines))


def _file(frame: Frame, root: str) -> str:
    """Return a file relative to the project, or to where libraries are installed."""
    is_own = frame.file.startswith(root) and not frame.skipped
    return frame.file[len(root) if is_own else frame.skipped :]


def too_much(
    found: Found,
    known: Found | None,
    limit: str | int | None,
    allocator: str = "",
    slack: float = _SLACK,
) -> str:
    """Say how much more is needed than may be, and which lines hold it; "" if that is well.

    known: what was needed before; slack: the share of it that may be added. limit: for the tensors,
    or for what the allocator reserves.
    """
    said = f"needs {format_size(found.peak_bytes)}{found.has_convolved * OPEN} of GPU memory"
    said += f" on rank {found.rank} of {found.ranks}" if found.ranks > 1 else ""
    lines = largest(found.lines)
    has_grown = known and found.peak_bytes > known.peak_bytes * (1 + slack)
    if known and has_grown:
        more = found.peak_bytes - known.peak_bytes
        said += f": {format_size(more)} more than its baseline of {format_size(known.peak_bytes)}"
        changed = grown(known.lines, found.lines)
        shown = [one for one in changed if one.change_bytes > _LEAST_PART * more]
        lines = [f"+{format_size(one.change_bytes)} at {one.key}" for one in shown]
    limited = found.reserved_bytes if allocator else found.peak_bytes
    is_over = limit is not None and limited > parse_size(limit)
    if is_over and allocator:
        said += f"; {format_size(limited)} are reserved with the allocator {allocator!r}"
    if is_over:
        said += f"; its limit is {limit if isinstance(limit, str) else format_size(limit or 0)}"
    return with_lines(said, lines) if has_grown or is_over else ""


def largest(lines: Mapping[str, int]) -> list[str]:
    """Return what each line holds, in words."""
    return [f"{format_size(size)} at {line}" for line, size in lines.items()]


def with_lines(head: str, lines: Sequence[str]) -> str:
    """Return a text with the first of these lines."""
    shown = [f"  {printable(line)}" for line in lines[:_MOST_LINES]]
    left = len(lines) - len(shown)
    return "\n".join([head, *shown, *([f"  and {left} more lines"] if left > 0 else [])])


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Change, ...]:
    """Return by how much the memory of each line differs, that which grew most first.

    A line is known by its text, wherever it has moved; one whose text has changed by its place
    among the others of its function.
    """
    found = changes(tuple(_rows(before, after)), tuple(_rows(after, before)))
    return tuple(one for one in found if one.change_bytes)


def _rows(lines: Mapping[str, int], others: Mapping[str, int]) -> Iterator[Row]:
    known = {_NUMBERS.sub("", line) for line in others}
    count: Counter[str] = Counter()
    for line in sorted(lines, key=lambda one: [int(text) for text in _NUMBERS.findall(one)[:1]]):
        text = _NUMBERS.sub("", line)
        key = text if text in known else text.partition(": ")[0]
        count[key] += 1
        yield Row(line, lines[line], 1, (key, count[key]))
