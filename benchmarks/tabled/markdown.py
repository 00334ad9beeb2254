"""Tables in Markdown: columns, figures, and the line below that says where they are from."""

from __future__ import annotations

import shlex
import statistics
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

GIB = 1 << 30
MIB = 1 << 20
SOURCE = "{source}"
"""Where a caption names its result; whoever knows the document puts a link in its place."""

_COUNTS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_RECORDINGS = (".gmtrace", ".pickle")
_AFTER_COMMAND = ("--output", "--write")
"""Options that say where figures go, and nothing of what was measured."""


def grid(headings: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table. headings: `left | right :`, where a colon moves a column to the right."""
    names = [name.strip() for name in headings.split("|")]
    lines = [[name.removesuffix(" :") for name in names]]
    lines += [list(row) for row in rows]
    marks = "|".join("---:" if name.endswith(":") else "---" for name in names)
    shown = ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in lines]
    return "\n".join([shown[0], f"|{marks}|", *shown[1:]])


def number(value: float | None, digits: int = 2, unit: float = 1) -> str:
    """Return a figure as tables have it; nothing where there is none."""
    return "" if value is None else f"{value / unit:,.{digits}f}"


def marked(figure: str, runs: int) -> str:
    """Return a figure with a mark where it rests on one run alone."""
    return f"{figure} †" if figure and runs == 1 else figure


def spread(values: Sequence[float], digits: int, unit: float = 1) -> str:
    """Return the median of several runs with the least and the most, or the mark of one run."""
    median = number(statistics.median(values), digits, unit)
    if len(values) == 1:
        return marked(median, 1)
    least, most = (number(value, digits, unit) for value in (min(values), max(values)))
    return f"{median} ({least} to {most})"


def counted(many: int, what: str = "run") -> str:
    """Return how many there are, in words."""
    said = _COUNTS[many] if 0 < many < len(_COUNTS) else f"{many:,}"
    return f"{said} {what}" if many == 1 else f"{said} {what}s"


def command_of(run: dict[str, Any]) -> str:
    """Return the command of a run in short.

    Left out is where its figures go; several files of one folder are one pattern, and files from
    outside of the checkout have no name.
    """
    kept: list[str] = []
    is_name = False
    for word in shlex.split(run["command"]):
        if is_name and not word.startswith("-"):
            is_name = False
            continue
        is_name = word in _AFTER_COMMAND
        said = _in_short(word)
        if not is_name and not (said != word and said == kept[-1]):
            kept.append(said)
    return " ".join(kept)


def _in_short(word: str) -> str:
    if word.startswith(("/", "..")):
        return "FILE..."
    path = PurePosixPath(word)
    return f"{path.parent}/*{path.suffix}" if path.suffix in _RECORDINGS else word


def caption(run: dict[str, Any], runs: Collection[int] | str, *, versions: str = "") -> str:
    """Return the line that says where the figures above are from.

    runs: on how many runs the figures rest, or what they are in words. versions: what else ran,
    such as PyTorch's.
    """
    gpu = run.get("gpu", "none")
    several, single = [runs] if isinstance(runs, str) else [], ""
    if not isinstance(runs, str):
        several = [counted(each) for each in sorted(set(runs)) if each > 1]
        single = "† one run" if 1 in runs else ""
    said = (
        f"`{command_of(run)}`",
        f"commit {run['commit']}",
        run["date"],
        run["processor"] if gpu.startswith("none") else gpu,
        ", ".join(filter(None, (versions, f"Python {run['python']}"))),
        " or ".join(several),
        single,
    )
    return f"<sub>{SOURCE}: {'; '.join(filter(None, said))}.</sub>"


def torch_of(versions: dict[str, str] | str | None) -> str:
    """Return PyTorch's version as captions have it."""
    version = versions.get("torch") if isinstance(versions, dict) else versions
    return f"PyTorch {version}" if version else ""


def table(headings: str, rows: Iterable[Sequence[str]], *captions: str) -> str:
    """Return a table with its captions below."""
    return "\n\n".join([grid(headings, rows), "<br>\n".join(dict.fromkeys(captions))])
