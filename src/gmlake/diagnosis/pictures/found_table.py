"""The table of what to change: sorted, searched, and filtered by a click on an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from gmlake.pictures.figures import OwnFigure


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
    template: ClassVar[str] = "diagnosis/pictures/found.html"
